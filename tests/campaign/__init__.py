"""A campaign of real faults: real brokers, a real Redis Cluster, real workers, all of them broken.

``plan``      what goes wrong, who it hits and for how long, drawn from a seed
``faults``    every kind of fault
``fleet``     brokers, Redis, workers, and what stands between them
``load``      documents, at a steady pace, from a process of its own
``watch``     what goes in and what comes out, and when
``driver``    carries out the plan
``recovery``  how long it took until all went on
``reading``   reads everything back
``check``     what must hold of it, by brute force; ``shingles`` compares texts
``verdict``   puts together what the checks and the audit of the index found
``report``    the figures as a table

Run it: ``python -m tests.campaign --help``.
"""
