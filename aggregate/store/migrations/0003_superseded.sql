-- A capture that is replayed under another configuration or with other pipeline
-- settings leaves other rows about the same packets: only one pass of it may count.
-- That is the one done last or, while none is done, the one started last; superseded
-- holds the others. Live producers have no others: each life saw other packets.
CREATE OR REPLACE VIEW {{.Database}}.superseded AS
SELECT
    producer,
    pass.3 AS incarnation,
    pass.4 AS epoch
FROM
(
    SELECT
        producer,
        arrayPopBack(arraySort(groupArray((done, started, incarnation, epoch)))) AS passes
    FROM
    (
        SELECT
            producer,
            incarnation,
            epoch,
            maxIf(at, state = 'done') AS done,
            maxIf(at, state = 'started') AS started
        FROM {{.Database}}.runs
        WHERE mode = 'replay'
        GROUP BY producer, incarnation, epoch
    )
    GROUP BY producer
    HAVING count() > 1
)
ARRAY JOIN passes AS pass;
