package chdb

import (
	"net/http"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// ClickHouseOptions returns what clickhouse.Open needs to reach the engine's
// connection for role. The caller owns the result and may change pool sizes and
// the database; settings are not honoured, except insert_deduplication_token of
// an insert.
func (e *Engine) ClickHouseOptions(role Role) *clickhouse.Options {
	const connections = 4
	return &clickhouse.Options{
		Protocol:    clickhouse.HTTP,
		Addr:        []string{"csigscope-engine"},
		HttpUrlPath: rolePaths[role],
		Auth:        clickhouse.Auth{Database: "default"},
		DialContext: e.dial,
		// A proxy of the environment must not get to see local queries.
		TransportFunc: func(t *http.Transport) (http.RoundTripper, error) {
			t.Proxy = nil
			return t, nil
		},
		Compression:     &clickhouse.Compression{Method: clickhouse.CompressionNone},
		MaxOpenConns:    connections,
		MaxIdleConns:    connections,
		DialTimeout:     dialPatience,
		ReadTimeout:     10 * time.Minute,
		ConnMaxLifetime: time.Hour,
	}
}
