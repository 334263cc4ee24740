"""What /metrics of a worker could say, before and after ten seconds of work."""

from __future__ import annotations

BEFORE = """\
# TYPE stream_dedup_documents_total counter
stream_dedup_documents_total{status="original"} 1000
stream_dedup_documents_total{status="near_duplicate"} 500
# TYPE stream_dedup_dead_letters_total counter
stream_dedup_dead_letters_total{reason="not_json"} 2
stream_dedup_dead_letters_total{reason="no_text"} 0
# TYPE stream_dedup_consumer_lag_records gauge
stream_dedup_consumer_lag_records{topic="documents",partition="0"} 900
stream_dedup_consumer_lag_records{topic="documents",partition="10"} 100
stream_dedup_consumer_lag_records{topic="documents",partition="2"} 0
# TYPE stream_dedup_decision_seconds histogram
stream_dedup_decision_seconds_bucket{le="0.001"} 100
stream_dedup_decision_seconds_bucket{le="0.01"} 200
stream_dedup_decision_seconds_bucket{le="+Inf"} 200
stream_dedup_decision_seconds_count 200
stream_dedup_decision_seconds_sum 0.5
# TYPE stream_dedup_end_to_end_seconds histogram
stream_dedup_end_to_end_seconds_bucket{le="0.1"} 0
stream_dedup_end_to_end_seconds_bucket{le="1"} 0
stream_dedup_end_to_end_seconds_bucket{le="+Inf"} 0
# TYPE stream_dedup_stage_seconds_total counter
stream_dedup_stage_seconds_total{stage="decide"} 10
stream_dedup_stage_seconds_total{stage="publish"} 5
# TYPE stream_dedup_probes_total counter
stream_dedup_probes_total 1000
# TYPE stream_dedup_candidates_total counter
stream_dedup_candidates_total 500
# TYPE stream_dedup_capped_probes_total counter
stream_dedup_capped_probes_total 0
# TYPE stream_dedup_verifications_total counter
stream_dedup_verifications_total{result="accepted"} 10
stream_dedup_verifications_total{result="rejected"} 90
# TYPE stream_dedup_swept_originals_total counter
stream_dedup_swept_originals_total 0
# TYPE stream_dedup_transaction_aborts_total counter
stream_dedup_transaction_aborts_total 3
# TYPE stream_dedup_redis_errors_total counter
stream_dedup_redis_errors_total{kind="timeout"} 1
stream_dedup_redis_errors_total{kind="connection"} 4
# TYPE stream_dedup_worker_cpu_seconds_total counter
stream_dedup_worker_cpu_seconds_total{worker="0"} 100
stream_dedup_worker_cpu_seconds_total{worker="1"} 100
# TYPE stream_dedup_build_info gauge
stream_dedup_build_info{version="0.1.0",configuration="79f7c85549efdeff"} 1
# TYPE stream_dedup_shadow_documents_total counter
stream_dedup_shadow_documents_total{live="original",shadow="original",original="same"} 90
stream_dedup_shadow_documents_total{live="original",shadow="near_duplicate",original="other"} 10
# TYPE other_total counter
other_total 7
"""

AFTER = """\
# TYPE stream_dedup_documents_total counter
stream_dedup_documents_total{status="original"} 1600
stream_dedup_documents_total{status="near_duplicate"} 700
stream_dedup_documents_total{status="exact_duplicate"} 195
# TYPE stream_dedup_dead_letters_total counter
stream_dedup_dead_letters_total{reason="not_json"} 7
stream_dedup_dead_letters_total{reason="no_text"} 0
# TYPE stream_dedup_consumer_lag_records gauge
stream_dedup_consumer_lag_records{topic="documents",partition="0"} 400
stream_dedup_consumer_lag_records{topic="documents",partition="10"} 100
stream_dedup_consumer_lag_records{topic="documents",partition="2"} 0
# TYPE stream_dedup_decision_seconds histogram
stream_dedup_decision_seconds_bucket{le="0.001"} 150
stream_dedup_decision_seconds_bucket{le="0.01"} 300
stream_dedup_decision_seconds_bucket{le="+Inf"} 300
stream_dedup_decision_seconds_count 300
stream_dedup_decision_seconds_sum 0.9
# TYPE stream_dedup_end_to_end_seconds histogram
stream_dedup_end_to_end_seconds_bucket{le="0.1"} 50
stream_dedup_end_to_end_seconds_bucket{le="1"} 98
stream_dedup_end_to_end_seconds_bucket{le="+Inf"} 100
# TYPE stream_dedup_stage_seconds_total counter
stream_dedup_stage_seconds_total{stage="decide"} 16
stream_dedup_stage_seconds_total{stage="publish"} 7
# TYPE stream_dedup_probes_total counter
stream_dedup_probes_total 3000
# TYPE stream_dedup_candidates_total counter
stream_dedup_candidates_total 2500
# TYPE stream_dedup_capped_probes_total counter
stream_dedup_capped_probes_total 20
# TYPE stream_dedup_verifications_total counter
stream_dedup_verifications_total{result="accepted"} 60
stream_dedup_verifications_total{result="rejected"} 240
# TYPE stream_dedup_swept_originals_total counter
stream_dedup_swept_originals_total 100
# TYPE stream_dedup_transaction_aborts_total counter
stream_dedup_transaction_aborts_total 4
# TYPE stream_dedup_redis_errors_total counter
stream_dedup_redis_errors_total{kind="timeout"} 1
stream_dedup_redis_errors_total{kind="connection"} 6
# TYPE stream_dedup_worker_cpu_seconds_total counter
stream_dedup_worker_cpu_seconds_total{worker="0"} 108
stream_dedup_worker_cpu_seconds_total{worker="1"} 107
# TYPE stream_dedup_worker_resident_bytes gauge
stream_dedup_worker_resident_bytes{worker="0"} 104857600
stream_dedup_worker_resident_bytes{worker="1"} 104857600
# TYPE stream_dedup_worker_restarts_total counter
stream_dedup_worker_restarts_total{cause="exit"} 1
# TYPE stream_dedup_ready gauge
stream_dedup_ready 1
# TYPE stream_dedup_assigned_partitions gauge
stream_dedup_assigned_partitions 3
# TYPE stream_dedup_last_publish_timestamp_seconds gauge
stream_dedup_last_publish_timestamp_seconds 1000009
# TYPE stream_dedup_build_info gauge
stream_dedup_build_info{version="0.1.0",configuration="79f7c85549efdeff"} 1
# TYPE stream_dedup_index_originals gauge
stream_dedup_index_originals 500000
# TYPE stream_dedup_index_planned_originals gauge
stream_dedup_index_planned_originals 1000000
# TYPE stream_dedup_index_entries gauge
stream_dedup_index_entries{table="0"} 500000
stream_dedup_index_entries{table="1"} 500000
stream_dedup_index_entries{table="ids"} 500000
# TYPE stream_dedup_index_fullest_key_entries gauge
stream_dedup_index_fullest_key_entries 1204
# TYPE stream_dedup_index_mean_key_entries gauge
stream_dedup_index_mean_key_entries 3.25
# TYPE stream_dedup_index_planned_candidates gauge
stream_dedup_index_planned_candidates 0.8
# TYPE stream_dedup_redis_memory_bytes gauge
stream_dedup_redis_memory_bytes{kind="used"} 805306368
stream_dedup_redis_memory_bytes{kind="max"} 1073741824
stream_dedup_redis_memory_bytes{kind="planned"} 1610612736
# TYPE stream_dedup_redis_fullest_node_ratio gauge
stream_dedup_redis_fullest_node_ratio 0.75
# TYPE stream_dedup_shadow_documents_total counter
stream_dedup_shadow_documents_total{live="original",shadow="original",original="same"} 180
stream_dedup_shadow_documents_total{live="original",shadow="near_duplicate",original="other"} 20
# TYPE stream_dedup_shadow_skipped_documents_total counter
stream_dedup_shadow_skipped_documents_total{reason="backlog"} 5
"""
