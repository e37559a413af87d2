-- Statements of the invocation queue in SQLite. `hoglab.storage.invocations.statements` says what the headers mean.
-- A ``?`` stands for a column of a row that is written, in the order of the columns; other parameters have names.

-- part: columns
-- Columns of a claimed invocation, as `claimed_of` takes them.
id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, reset_count, state, lock_token, created_at

-- part: lane
-- Available invocations of a queue and priority.
FROM invocation WHERE status = 'available' AND queue = :queue AND priority = :priority

-- part: function_lane
-- Available invocations of one function in a queue and priority.
{lane} AND project_id = :project_id AND function_id = :function_id


-- Adding --------------------------------------------------------------------------------------------------------------

-- part: new_columns
id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, log_offset, state, created_at, order_key,
status

-- part: new_values
-- Values of the columns, with the status: blocked while an earlier invocation of the order key is unfinished.
?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, CASE WHEN ?11 IS NOT NULL AND EXISTS (
    SELECT 1 FROM invocation AS earlier
    WHERE earlier.function_id = ?3 AND earlier.order_key = ?11 AND earlier.finished_at IS NULL
) THEN 'held' ELSE 'available' END

-- name: last_row
-- Rows that come after it are new.
SELECT coalesce(max(rowid), 0) FROM invocation

-- name: insert
-- Add an invocation, unless its id is known.
INSERT INTO invocation ({new_columns}) VALUES ({new_values}) ON CONFLICT (id) DO NOTHING

-- name: rows_after
-- Functions of the invocations that were added after a row.
SELECT function_id FROM invocation WHERE rowid > :last_row

-- name: insert_again
-- Begin a finished invocation again, if its result still has the version ``?12``.
INSERT INTO invocation ({new_columns})
SELECT {new_values} WHERE EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = ?1 AND version = ?12)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, finished_at = NULL, reset_count = 0,
    parent_run_id = excluded.parent_run_id, queue = excluded.queue, priority = excluded.priority,
    scheduled_at = excluded.scheduled_at, state = excluded.state, created_at = excluded.created_at,
    order_key = excluded.order_key
WHERE finished_at IS NOT NULL

-- name: known_ids
-- Ids that run, wait or were run. Cancelled ones were not run.
SELECT value FROM json_each(:ids) AS asked
WHERE EXISTS (SELECT 1 FROM invocation WHERE invocation.id = asked.value AND status != 'cancelled')
    OR EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = asked.value AND status != 'cancelled')

-- name: position
SELECT "offset" FROM consumer_position WHERE consumer = :consumer

-- name: advance
-- Move the position of a consumer, never back.
INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (?, ?, ?)
ON CONFLICT (consumer) DO UPDATE SET "offset" = max("offset", excluded."offset"), updated_at = excluded.updated_at

-- name: masking_counts
-- Counts of masked values whose windows are open.
SELECT masking_counter.function_id, masking_counter.hash, count, expires_at
FROM json_each(:keys) AS asked JOIN masking_counter
    ON masking_counter.function_id = asked.value ->> 0 AND masking_counter.hash = asked.value ->> 1
WHERE expires_at > :now

-- name: count_masked
-- Replace a count by the next one, unless it is another than ``before``, the one that the next was made of.
INSERT INTO masking_counter (function_id, hash, count, expires_at) VALUES (:function_id, :hash, :count, :expires_at)
ON CONFLICT (function_id, hash) DO UPDATE SET count = excluded.count, expires_at = excluded.expires_at
WHERE CASE WHEN :before = 0 THEN expires_at <= :now
    ELSE count = :before AND expires_at = excluded.expires_at END


-- Traces, dead letters and jobs ---------------------------------------------------------------------------------------

-- name: add_log
INSERT INTO log_entry (project_id, log_source, log_source_id, instance_id, timestamp, level, message)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: add_metric
INSERT INTO app_metric
    (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id, count)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id)
DO UPDATE SET count = count + excluded.count

-- name: save_result
-- Keep the result of an invocation, unless there is a newer one.
INSERT INTO invocation_result
    (invocation_id, project_id, function_id, status, attempts, version, is_retry, parent_run_id, scheduled_at,
    first_scheduled_at, started_at, finished_at, duration_ms, error_kind, error_message, event_uuid, distinct_id,
    person_id, invocation_globals)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (invocation_id) DO UPDATE SET project_id = excluded.project_id, function_id = excluded.function_id,
    status = excluded.status, attempts = excluded.attempts, version = excluded.version,
    is_retry = excluded.is_retry, parent_run_id = excluded.parent_run_id, scheduled_at = excluded.scheduled_at,
    first_scheduled_at = excluded.first_scheduled_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at, duration_ms = excluded.duration_ms, error_kind = excluded.error_kind,
    error_message = excluded.error_message, event_uuid = excluded.event_uuid, distinct_id = excluded.distinct_id,
    person_id = excluded.person_id, invocation_globals = excluded.invocation_globals
WHERE excluded.version > version

-- name: save_dead
-- Keep a dead letter. One that failed again keeps the moment when it failed first.
INSERT INTO dead_event (id, project_id, function_id, source, step, reason, event_uuid, event, distinct_id, payload,
    first_failed_at, failed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET step = excluded.step, reason = excluded.reason, payload = excluded.payload,
    failed_at = excluded.failed_at, attempts = attempts + 1

-- name: trim_dead
-- Delete the oldest dead letters of a function beyond the ``most`` that are kept.
DELETE FROM dead_event WHERE rowid IN (
    SELECT rowid FROM dead_event WHERE project_id = :project_id AND function_id = :function_id
    ORDER BY failed_at DESC LIMIT -1 OFFSET :most
)

-- name: forget_dead
DELETE FROM dead_event WHERE id IN (SELECT value FROM json_each(:ids))

-- name: advance_job
-- Record a step of a job that runs and has not made this step before.
UPDATE backfill SET cursor = :cursor, seen = seen + :seen, queued = queued + :queued,
    settled = settled + :already_run, put_aside = put_aside + :dead_letters
WHERE id = :id AND cursor = :before AND status = 'running'


-- Claiming ------------------------------------------------------------------------------------------------------------

-- name: next_queue
-- Queues, priorities, projects and functions with available invocations are found one by one: one index probe each.
SELECT min(queue) FROM invocation WHERE status = 'available' AND queue > :after

-- name: next_priority
SELECT min(priority) FROM invocation WHERE status = 'available' AND queue = :queue AND priority > :after

-- name: next_project
SELECT min(project_id) {lane} AND project_id > :after

-- name: next_function
SELECT min(function_id) {lane} AND project_id = :project_id AND function_id > :after

-- name: claim
-- Lock the oldest due invocations of a function.
UPDATE invocation SET status = 'running', lock_token = :token, heartbeat_at = :now WHERE rowid IN (
    SELECT rowid {function_lane} AND scheduled_at <= :now ORDER BY scheduled_at LIMIT :most
)
RETURNING {columns}

-- name: first_scheduled
SELECT min(scheduled_at) {function_lane}

-- name: count_due
-- Number of due invocations of a function, counted up to ``most``.
SELECT count(*) FROM (SELECT 1 {function_lane} AND scheduled_at <= :until LIMIT :most)

-- name: has_more_than
-- A row if more than ``number`` invocations of a function are available.
SELECT 1 {function_lane} ORDER BY scheduled_at LIMIT 1 OFFSET :number

-- name: oldest
-- The oldest available invocations of a function, due or not.
SELECT {columns} {function_lane} ORDER BY scheduled_at, rowid LIMIT :most

-- name: complete
-- End an available invocation that another one took in.
UPDATE invocation SET status = 'completed', finished_at = :now, state = x'' WHERE id = :id


-- Outcomes ------------------------------------------------------------------------------------------------------------

-- name: locked
-- Running invocations among some (id, lock token), with their order keys.
SELECT invocation.id, invocation.lock_token, function_id, order_key FROM json_each(:locks) AS asked
JOIN invocation ON invocation.id = json_extract(asked.value, '$[0]')
    AND invocation.lock_token = json_extract(asked.value, '$[1]')
WHERE status = 'running'

-- name: finish
UPDATE invocation SET status = :status, finished_at = :now, state = x'', lock_token = NULL, heartbeat_at = NULL
WHERE id = :id

-- name: suspend
-- Have an invocation wait for its next turn. A turn that ended in order clears the count of lost workers.
UPDATE invocation SET status = 'available', scheduled_at = :due, priority = coalesce(:priority, priority),
    state = coalesce(:state, state), reset_count = 0, lock_token = NULL, heartbeat_at = NULL
WHERE id = :id

-- name: unblock_next
-- Make the oldest unfinished invocation of an order key available.
UPDATE invocation SET status = 'available', scheduled_at = max(scheduled_at, :now)
WHERE status = 'held' AND rowid = (
    SELECT min(rowid) FROM invocation
    WHERE function_id = :function_id AND order_key = :order_key AND finished_at IS NULL
)

-- name: beat
UPDATE invocation SET heartbeat_at = :now WHERE id = :id


-- Counting ------------------------------------------------------------------------------------------------------------

-- name: count_unfinished
-- Numbers of unfinished invocations. A function may come more than once.
SELECT function_id, count(*) FROM invocation WHERE status = 'available' GROUP BY function_id
UNION ALL
SELECT function_id, count(*) FROM invocation WHERE status = 'running' GROUP BY function_id
UNION ALL
SELECT function_id, count(*) FROM invocation
WHERE order_key IS NOT NULL AND finished_at IS NULL AND status = 'held' GROUP BY function_id

-- name: count_running
SELECT count(*) FROM invocation WHERE status = 'running'

-- name: count_dead
SELECT count(*) FROM dead_event


-- Sweeping ------------------------------------------------------------------------------------------------------------

-- name: release
-- Make what runs due again.
UPDATE invocation SET status = 'available', scheduled_at = :now, lock_token = NULL, heartbeat_at = NULL
WHERE status = 'running'

-- name: latest
-- The latest moment that was noted of what is over or at work.
SELECT max(
    coalesce((SELECT max(updated_at) FROM consumer_position), 0),
    coalesce((SELECT max(finished_at) FROM invocation WHERE finished_at IS NOT NULL), 0),
    coalesce((SELECT max(heartbeat_at) FROM invocation WHERE status = 'running'), 0)
)

-- name: move_heartbeats
UPDATE invocation SET heartbeat_at = heartbeat_at + :jump WHERE status = 'running'

-- name: move_waits
UPDATE invocation SET scheduled_at = scheduled_at + :jump WHERE status = 'available' AND scheduled_at > :before

-- name: move_windows
UPDATE masking_counter SET expires_at = expires_at + :jump WHERE expires_at > :before

-- name: stalled
-- Running invocations without a heartbeat since a moment that may be reset once more.
SELECT id, reset_count FROM invocation
WHERE status = 'running' AND heartbeat_at < :beat_before AND reset_count < :max_resets
ORDER BY heartbeat_at LIMIT :most

-- name: reset
UPDATE invocation SET status = 'available', scheduled_at = :due, reset_count = :count, lock_token = NULL,
    heartbeat_at = NULL
WHERE id = :id

-- name: take_poisoned
-- Lock invocations that were reset too often.
UPDATE invocation SET lock_token = :token, heartbeat_at = :now WHERE rowid IN (
    SELECT rowid FROM invocation
    WHERE status = 'running' AND heartbeat_at < :beat_before AND reset_count >= :max_resets LIMIT :most
)
RETURNING {columns}

-- name: lowest_position
SELECT min("offset") FROM consumer_position

-- name: delete_finished
-- Delete what was finished before a moment, and was made of records that every consumer is past.
DELETE FROM invocation WHERE rowid IN (
    SELECT rowid FROM invocation
    WHERE finished_at IS NOT NULL AND finished_at < :before AND coalesce(log_offset, 0) <= :passed
    ORDER BY finished_at LIMIT :most
)

-- name: expired_log_entry
DELETE FROM log_entry WHERE rowid IN (
    SELECT rowid FROM log_entry WHERE timestamp < :before ORDER BY timestamp LIMIT :most
)

-- name: expired_app_metric
DELETE FROM app_metric WHERE rowid IN (SELECT rowid FROM app_metric WHERE hour < :before ORDER BY hour LIMIT :most)

-- name: expired_invocation_result
DELETE FROM invocation_result WHERE rowid IN (
    SELECT rowid FROM invocation_result WHERE version < :before ORDER BY version LIMIT :most
)

-- name: expired_masking_counter
DELETE FROM masking_counter WHERE rowid IN (
    SELECT rowid FROM masking_counter WHERE expires_at < :before ORDER BY expires_at LIMIT :most
)

-- name: expired_dead_event
DELETE FROM dead_event WHERE rowid IN (
    SELECT rowid FROM dead_event WHERE failed_at < :before ORDER BY failed_at LIMIT :most
)

-- name: expired_backfill
DELETE FROM backfill WHERE rowid IN (
    SELECT rowid FROM backfill WHERE finished_at < :before ORDER BY finished_at LIMIT :most
)
