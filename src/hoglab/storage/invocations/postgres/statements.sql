-- Statements of the invocation queue in PostgreSQL. `hoglab.storage.invocations.statements` says what the headers mean.
-- Nobody waits for a row that another one is about to take: ``SKIP LOCKED``.

-- part: columns
-- Columns of a claimed invocation, as `claimed_of` takes them.
id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, reset_count, state, lock_token, created_at

-- part: now_us
-- The moment by the clock of the server, which all processes share, in microseconds since the Unix epoch.
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- part: lanes
-- All lanes of queues from ``first`` to ``last``, and when the first row of each is due. A loose index scan finds each
-- queue, priority, project and function with one probe. Rows that are gone may be in the way, as long as somebody has
-- an old snapshot: who looks into a lane begins at its first row.
WITH RECURSIVE lane AS (
    (
        SELECT queue, priority, project_id, function_id, scheduled_at AS first FROM invocation
        WHERE status = 'available' AND queue >= %(first)s AND queue <= %(last)s
        ORDER BY queue, priority, project_id, function_id, scheduled_at LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM lane CROSS JOIN LATERAL (
        SELECT queue, priority, project_id, function_id, scheduled_at AS first FROM invocation
        WHERE status = 'available' AND queue <= %(last)s
            AND (queue, priority, project_id, function_id)
                > (lane.queue, lane.priority, lane.project_id, lane.function_id)
        ORDER BY queue, priority, project_id, function_id, scheduled_at LIMIT 1
    ) AS following
)

-- part: of_lane
-- Whether a row is in a lane.
invocation.status = 'available' AND invocation.queue = lane.queue AND invocation.priority = lane.priority
AND invocation.project_id = lane.project_id AND invocation.function_id = lane.function_id
AND invocation.scheduled_at >= lane.first


-- Adding --------------------------------------------------------------------------------------------------------------

-- part: new_columns
id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, log_offset, state, created_at, order_key

-- part: new_rows
unnest(
    %(id)b::text[], %(project_id)b::integer[], %(function_id)b::text[], %(parent_run_id)b::text[], %(queue)b::text[],
    %(priority)b::smallint[], %(scheduled_at)b::bigint[], %(log_offset)b::bigint[], %(state)b::bytea[],
    %(created_at)b::bigint[], %(order_key)s::text[]
)

-- name: lock_keys
-- Wait until nobody else has these locks, and keep them until the transaction is over.
SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key

-- name: insert
-- Add invocations without order keys, unless their ids are known.
WITH inserted AS (
    INSERT INTO invocation ({new_columns}, status)
    SELECT {new_columns}, 'available' FROM {new_rows} WITH ORDINALITY AS new ({new_columns}, place) ORDER BY place
    ON CONFLICT (id) DO NOTHING RETURNING function_id
)
SELECT function_id, count(*) FROM inserted GROUP BY function_id

-- name: insert_in_order
-- Add invocations with order keys: all but the oldest unfinished one of a key are blocked.
WITH new AS MATERIALIZED (
    SELECT * FROM {new_rows} WITH ORDINALITY AS new ({new_columns}, place)
    WHERE NOT EXISTS (SELECT 1 FROM invocation AS known WHERE known.id = new.id)
), inserted AS (
    INSERT INTO invocation ({new_columns}, status)
    SELECT {new_columns}, CASE WHEN EXISTS (
        SELECT 1 FROM invocation AS earlier WHERE earlier.function_id = new.function_id
            AND earlier.order_key = new.order_key AND earlier.finished_at IS NULL
    ) OR row_number() OVER (PARTITION BY function_id, order_key ORDER BY place) > 1 THEN 'held' ELSE 'available' END
    FROM new ORDER BY place
    ON CONFLICT (id) DO NOTHING RETURNING function_id
)
SELECT function_id, count(*) FROM inserted GROUP BY function_id

-- name: insert_again
-- Begin a finished invocation again, if its result still has a version.
INSERT INTO invocation ({new_columns}, status)
SELECT {new_columns}, CASE WHEN order_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM invocation AS earlier WHERE earlier.function_id = new.function_id
        AND earlier.order_key = new.order_key AND earlier.finished_at IS NULL
) THEN 'held' ELSE 'available' END
FROM {new_rows} AS new ({new_columns})
WHERE EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = new.id AND version = %(version)s)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, finished_at = NULL, reset_count = 0,
    parent_run_id = excluded.parent_run_id, queue = excluded.queue, priority = excluded.priority,
    scheduled_at = excluded.scheduled_at, state = excluded.state, created_at = excluded.created_at,
    order_key = excluded.order_key
WHERE invocation.finished_at IS NOT NULL

-- name: known_ids
-- Ids that run, wait or were run. Cancelled ones were not run.
SELECT id FROM unnest(%(ids)s::text[]) AS asked (id)
WHERE EXISTS (SELECT 1 FROM invocation WHERE invocation.id = asked.id AND status <> 'cancelled')
    OR EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = asked.id AND status <> 'cancelled')

-- name: position
SELECT "offset" FROM consumer_position WHERE consumer = %(consumer)s

-- name: advance
-- Move the position of a consumer, never back.
INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (%s, %s, %s)
ON CONFLICT (consumer) DO UPDATE SET "offset" = greatest(consumer_position."offset", excluded."offset"),
    updated_at = excluded.updated_at

-- name: masking_counts
-- Counts of masked values whose windows are open.
SELECT counter.function_id, counter.hash, counter.count, counter.expires_at
FROM unnest(%(functions)s::text[], %(hashes)s::text[]) AS asked (function_id, hash)
JOIN masking_counter AS counter USING (function_id, hash) WHERE counter.expires_at > %(now)s

-- name: count_masked
-- Replace a count by the next one, unless it is another than ``before``, the one that the next was made of.
INSERT INTO masking_counter (function_id, hash, count, expires_at)
VALUES (%(function_id)s, %(hash)s, %(count)s, %(expires_at)s)
ON CONFLICT (function_id, hash) DO UPDATE SET count = excluded.count, expires_at = excluded.expires_at
WHERE CASE WHEN %(before)s = 0 THEN masking_counter.expires_at <= %(now)s
    ELSE masking_counter.count = %(before)s AND masking_counter.expires_at = excluded.expires_at END


-- Traces, dead letters and jobs ---------------------------------------------------------------------------------------

-- name: add_logs
-- A transaction has its number before its lines have ids: who follows logs waits for those that are at work.
INSERT INTO log_entry (project_id, log_source, log_source_id, instance_id, timestamp, level, message)
SELECT project_id, log_source, log_source_id, instance_id, timestamp, level, message
FROM unnest(%b::integer[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[]) WITH ORDINALITY
    AS line (project_id, log_source, log_source_id, instance_id, timestamp, level, message, place)
WHERE pg_current_xact_id() IS NOT NULL ORDER BY place

-- name: add_metrics
INSERT INTO app_metric
    (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id, count)
SELECT * FROM unnest(
    %b::integer[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::bigint[]
)
ON CONFLICT (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id)
DO UPDATE SET count = app_metric.count + excluded.count

-- name: save_results
-- Keep results of invocations that have no newer ones.
INSERT INTO invocation_result
    (invocation_id, project_id, function_id, status, attempts, version, is_retry, parent_run_id, scheduled_at,
    first_scheduled_at, started_at, finished_at, duration_ms, error_kind, error_message, event_uuid, distinct_id,
    person_id, invocation_globals)
SELECT * FROM unnest(
    %b::text[], %b::integer[], %b::text[], %b::text[], %b::integer[], %b::bigint[], %b::boolean[], %b::text[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::integer[], %b::text[], %b::text[], %b::text[],
    %b::text[], %b::text[], %b::bytea[]
)
ON CONFLICT (invocation_id) DO UPDATE SET project_id = excluded.project_id, function_id = excluded.function_id,
    status = excluded.status, attempts = excluded.attempts, version = excluded.version,
    is_retry = excluded.is_retry, parent_run_id = excluded.parent_run_id, scheduled_at = excluded.scheduled_at,
    first_scheduled_at = excluded.first_scheduled_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at, duration_ms = excluded.duration_ms, error_kind = excluded.error_kind,
    error_message = excluded.error_message, event_uuid = excluded.event_uuid, distinct_id = excluded.distinct_id,
    person_id = excluded.person_id, invocation_globals = excluded.invocation_globals
WHERE excluded.version > invocation_result.version

-- name: save_dead
-- Keep a dead letter. One that failed again keeps the moment when it failed first.
INSERT INTO dead_event (id, project_id, function_id, source, step, reason, event_uuid, event, distinct_id, payload,
    first_failed_at, failed_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET step = excluded.step, reason = excluded.reason, payload = excluded.payload,
    failed_at = excluded.failed_at, attempts = dead_event.attempts + 1

-- name: trim_dead
-- Delete the oldest dead letters of a function beyond the ``most`` that are kept.
DELETE FROM dead_event WHERE id IN (
    SELECT id FROM dead_event WHERE project_id = %(project_id)s AND function_id = %(function_id)s
    ORDER BY failed_at DESC OFFSET %(most)s
)

-- name: forget_dead
DELETE FROM dead_event WHERE id = ANY (%(ids)s)

-- name: advance_job
-- Record a step of a job that runs and has not made this step before.
UPDATE backfill SET cursor = %(cursor)s, seen = seen + %(seen)s, queued = queued + %(queued)s,
    settled = settled + %(already_run)s, put_aside = put_aside + %(dead_letters)s
WHERE id = %(id)s AND cursor = %(before)s AND status = 'running'

-- name: notify
-- Wake the other processes when this is committed.
SELECT pg_notify('hoglab_queue', %s)

-- name: listen
LISTEN hoglab_queue


-- Claiming ------------------------------------------------------------------------------------------------------------

-- name: due
-- The lanes of a queue with due invocations, and their numbers: counted up to ``most`` each, and up to ``counted`` all
-- together, but one at least.
{lanes}, number AS (SELECT greatest(1, %(counted)s / greatest(count(*), 1)) AS most FROM lane)
SELECT lane.priority, lane.project_id, lane.function_id, lane.first, least(number.most, %(most)s), due.count
FROM number CROSS JOIN lane CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM invocation WHERE {of_lane} AND scheduled_at <= %(now)s LIMIT least(number.most, %(most)s)
    ) AS counted_rows
) AS due
WHERE due.count > 0

-- name: claim
-- Lock the oldest due invocations of several lanes. A token that ends in ``no_key`` says that there is no order key.
WITH picked AS MATERIALIZED (
    SELECT due.id FROM unnest(%(priorities)s::smallint[], %(projects)s::integer[], %(functions)s::text[],
        %(firsts)s::bigint[], %(numbers)s::integer[]) AS wanted (priority, project_id, function_id, first, number)
    CROSS JOIN LATERAL (
        SELECT id FROM invocation WHERE status = 'available' AND queue = %(queue)s
            AND invocation.priority = wanted.priority AND invocation.project_id = wanted.project_id
            AND invocation.function_id = wanted.function_id
            AND scheduled_at >= wanted.first AND scheduled_at <= %(now)s
        ORDER BY scheduled_at LIMIT wanted.number FOR UPDATE SKIP LOCKED
    ) AS due
)
UPDATE invocation SET status = 'running', heartbeat_at = %(now)s,
    lock_token = CASE WHEN order_key IS NULL THEN left(%(token)s, -1) || %(no_key)s ELSE %(token)s END
WHERE id IN (SELECT id FROM picked) RETURNING {columns}

-- name: first_scheduled
{lanes}
SELECT min(lane.first) FROM lane WHERE lane.function_id <> ALL (%(apart)s::text[])

-- name: count_due
-- Number of due invocations, counted up to ``most``, and up to ``most_of_project`` in each queue and priority.
{lanes}
SELECT least(%(most)s, coalesce(sum(count), 0))::bigint FROM (
    SELECT least(%(most_of_project)s, sum(due.count)) AS count FROM lane CROSS JOIN LATERAL (
        SELECT count(*) FROM (
            SELECT 1 FROM invocation WHERE {of_lane} AND scheduled_at <= %(until)s LIMIT %(most_of_project)s
        ) AS counted_rows
    ) AS due
    WHERE lane.function_id <> ALL (%(apart)s::text[]) GROUP BY lane.queue, lane.priority, lane.project_id
) AS of_projects

-- name: gathering
-- Functions with available invocations.
{lanes}
SELECT DISTINCT function_id FROM lane

-- name: ready
-- Lanes of functions in which as many invocations wait as the function wants, or in which one is due.
{lanes}
SELECT lane.queue, lane.priority, lane.project_id, lane.function_id
FROM lane JOIN unnest(%(functions)s::text[], %(sizes)s::integer[]) AS wanted (function_id, size) USING (function_id)
WHERE EXISTS (SELECT 1 FROM invocation WHERE {of_lane} AND scheduled_at <= %(now)s)
    OR EXISTS (SELECT 1 FROM invocation WHERE {of_lane} OFFSET wanted.size - 1)

-- name: oldest
-- The oldest available invocations of a function, due or not.
SELECT {columns} FROM invocation
WHERE status = 'available' AND queue = %(queue)s AND priority = %(priority)s AND project_id = %(project_id)s
    AND function_id = %(function_id)s
ORDER BY scheduled_at, rowid LIMIT %(most)s FOR UPDATE

-- name: complete
-- End available invocations that another one took in.
UPDATE invocation SET status = 'completed', finished_at = %(now)s, state = '' WHERE id = ANY (%(ids)s)


-- Outcomes ------------------------------------------------------------------------------------------------------------

-- name: order_keys
SELECT DISTINCT function_id, order_key FROM invocation WHERE id = ANY (%(ids)b) AND order_key IS NOT NULL

-- name: apply
-- Finish running invocations, or have them wait for their next turn. A turn that ended in order clears the count of
-- lost workers.
UPDATE invocation SET status = outcome.status, lock_token = NULL, heartbeat_at = NULL,
    finished_at = CASE WHEN outcome.status = 'available' THEN NULL ELSE %(now)s::bigint END,
    state = CASE WHEN outcome.status = 'available' THEN coalesce(outcome.state, invocation.state) ELSE '' END,
    scheduled_at = CASE WHEN outcome.status = 'available' THEN outcome.due ELSE invocation.scheduled_at END,
    reset_count = CASE WHEN outcome.status = 'available' THEN 0 ELSE invocation.reset_count END,
    priority = coalesce(outcome.priority, invocation.priority)
FROM unnest(%(ids)b::text[], %(tokens)b::text[], %(statuses)b::text[], %(states)b::bytea[], %(due)b::bigint[],
    %(priorities)b::smallint[]) AS outcome (id, token, status, state, due, priority)
WHERE invocation.id = outcome.id AND invocation.lock_token = outcome.token AND invocation.status = 'running'
RETURNING invocation.id, invocation.function_id, invocation.order_key, outcome.status

-- name: unblock_next
-- Make the oldest unfinished invocation of each order key available.
UPDATE invocation SET status = 'available', scheduled_at = greatest(scheduled_at, %(now)s)
FROM unnest(%(functions)s::text[], %(order_keys)s::text[]) AS key (function_id, order_key)
WHERE invocation.status = 'held' AND invocation.id = (
    SELECT next.id FROM invocation AS next WHERE next.function_id = key.function_id
        AND next.order_key = key.order_key AND next.finished_at IS NULL ORDER BY next.rowid LIMIT 1
)
RETURNING invocation.id

-- name: beat
UPDATE invocation SET heartbeat_at = %(now)s FROM unnest(%(ids)s::text[], %(tokens)s::text[]) AS lock (id, token)
WHERE invocation.id = lock.id AND invocation.lock_token = lock.token AND invocation.status = 'running'
RETURNING invocation.id


-- Counting ------------------------------------------------------------------------------------------------------------

-- name: server_now
SELECT {now_us}

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


-- Workers -------------------------------------------------------------------------------------------------------------

-- name: beat_worker
INSERT INTO queue_worker (id, heartbeat_at) VALUES (%(id)s, {now_us})
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at

-- name: forget_workers
DELETE FROM queue_worker WHERE heartbeat_at < {now_us} - %(age)s

-- name: leave
DELETE FROM queue_worker WHERE id = %(id)s

-- name: release
-- Make due what dead workers ran, and the worker ``own``. The beginning of a lock token is the id of its worker. While
-- the server was down nobody could beat: only a server that is up for long tells who is dead.
WITH living AS (
    SELECT id FROM queue_worker WHERE id <> %(own)s AND heartbeat_at > {now_us} - %(dead_after)s
), lost AS MATERIALIZED (
    SELECT id FROM invocation
    WHERE status = 'running' AND left(lock_token, %(id_length)s) NOT IN (SELECT id FROM living)
        AND (
            left(lock_token, %(id_length)s) = %(own)s
            OR NOT EXISTS (SELECT 1 FROM queue_worker WHERE queue_worker.id = left(lock_token, %(id_length)s))
            OR extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000 > %(up_for)s
        )
    FOR UPDATE SKIP LOCKED
)
UPDATE invocation SET status = 'available', scheduled_at = %(now)s, lock_token = NULL, heartbeat_at = NULL
WHERE id IN (SELECT id FROM lost)


-- Sweeping ------------------------------------------------------------------------------------------------------------

-- name: latest
-- The latest moment that was noted of what is over or at work.
SELECT greatest(
    (SELECT max(updated_at) FROM consumer_position),
    (SELECT max(finished_at) FROM invocation WHERE finished_at IS NOT NULL),
    (SELECT max(heartbeat_at) FROM invocation WHERE status = 'running'),
    0
)

-- name: move_heartbeats
UPDATE invocation SET heartbeat_at = heartbeat_at + %(jump)s WHERE status = 'running'

-- name: move_waits
UPDATE invocation SET scheduled_at = scheduled_at + %(jump)s
WHERE status = 'available' AND scheduled_at > %(before)s

-- name: move_windows
UPDATE masking_counter SET expires_at = expires_at + %(jump)s WHERE expires_at > %(before)s

-- name: stalled
-- Running invocations without a heartbeat since a moment that may be reset once more.
SELECT id, reset_count FROM invocation
WHERE status = 'running' AND heartbeat_at < %(beat_before)s AND reset_count < %(max_resets)s
ORDER BY heartbeat_at LIMIT %(most)s FOR UPDATE SKIP LOCKED

-- name: reset
UPDATE invocation SET status = 'available', scheduled_at = reset.due, reset_count = reset.count,
    lock_token = NULL, heartbeat_at = NULL
FROM unnest(%(ids)s::text[], %(due)s::bigint[], %(counts)s::smallint[]) AS reset (id, due, count)
WHERE invocation.id = reset.id

-- name: take_poisoned
-- Lock invocations that were reset too often.
WITH poisoned AS MATERIALIZED (
    SELECT id FROM invocation
    WHERE status = 'running' AND heartbeat_at < %(beat_before)s AND reset_count >= %(max_resets)s
    LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE invocation SET lock_token = %(token)s, heartbeat_at = %(now)s
WHERE id IN (SELECT id FROM poisoned) RETURNING {columns}

-- name: delete_finished
-- Delete what was finished before a moment, and was made of records that every consumer is past.
DELETE FROM invocation WHERE id IN (
    SELECT id FROM invocation WHERE finished_at IS NOT NULL AND finished_at < %(before)s
        AND coalesce(log_offset, 0) <= coalesce((SELECT min("offset") FROM consumer_position), 9223372036854775807)
    ORDER BY finished_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
)

-- name: expired_log_entry
DELETE FROM log_entry WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM log_entry WHERE timestamp < %(before)s ORDER BY timestamp LIMIT %(most)s FOR UPDATE SKIP LOCKED
))

-- name: expired_app_metric
DELETE FROM app_metric WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM app_metric WHERE hour < %(before)s ORDER BY hour LIMIT %(most)s FOR UPDATE SKIP LOCKED
))

-- name: expired_invocation_result
DELETE FROM invocation_result WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM invocation_result WHERE version < %(before)s ORDER BY version LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))

-- name: expired_masking_counter
DELETE FROM masking_counter WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM masking_counter WHERE expires_at < %(before)s ORDER BY expires_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))

-- name: expired_dead_event
DELETE FROM dead_event WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM dead_event WHERE failed_at < %(before)s ORDER BY failed_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))

-- name: expired_backfill
DELETE FROM backfill WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM backfill WHERE finished_at < %(before)s ORDER BY finished_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
))
