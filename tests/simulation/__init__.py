"""The worker's own code in a simulated world: Kafka, Redis, the clock and every fault are drawn.

``scheduler``   who goes on, and when it is
``functions``   what the Functions of Redis do
``redis``       a client of them that loses, repeats and delays calls
``broker``      logs and transactions
``group``       the consumer group
``clients``     what becomes of requests to Kafka; ``consumer`` and ``producer`` make them
``faults``      how often what goes wrong
``world``       the documents of one seed
``simulation``  puts workers into the world, and breaks things
``checks``      what must hold at the end
``broken``      workers that break a promise, each of which must be caught
"""
