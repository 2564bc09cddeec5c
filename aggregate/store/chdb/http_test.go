package chdb_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// overSocket is a client over a Unix socket, like curl --unix-socket.
func overSocket(t *testing.T, socket string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func send(t *testing.T, client *http.Client, method, path string, values url.Values, body io.Reader) (int, string, http.Header) {
	t.Helper()
	if values != nil {
		path += "?" + values.Encode()
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://engine"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

func TestPlainHTTP(t *testing.T) {
	client := overSocket(t, chdbtest.Start(t).Socket())
	for _, tt := range []struct {
		name, method, path string
		values             url.Values
		body               string
		status             int
		want               string
	}{
		{"ping", "GET", "/ping", nil, "", 200, "Ok.\n"},
		{"root", "GET", "/", nil, "", 200, "Ok.\n"},
		{"replicas", "GET", "/replicas_status", nil, "", 200, "Ok.\n"},
		{"default format", "GET", "/", url.Values{"query": {"SELECT 1, 'a'"}}, "", 200, "1\ta\n"},
		{"format clause", "GET", "/", url.Values{"query": {"SELECT 1 AS n FORMAT CSVWithNames;"}}, "", 200, "\"n\"\n1\n"},
		{"default_format", "GET", "/", url.Values{"query": {"SELECT 1 AS n"}, "default_format": {"JSONEachRow"}}, "", 200, "{\"n\":1}\n"},
		{"body", "POST", "/", nil, "SELECT 2", 200, "2\n"},
		{"query and body", "POST", "/", url.Values{"query": {"SELECT "}}, "3", 200, "3\n"},
		{"parameter", "POST", "/", url.Values{"query": {"SELECT {a:UInt8} + 1, {s:String}"}, "param_a": {"4"}, "param_s": {"a'b"}}, "", 200, "5\ta\\'b\n"},
		{"many blocks of JSON", "GET", "/", url.Values{"query": {"SELECT count() FROM numbers(3) FORMAT JSONCompactColumns"}}, "", 200, "[\n\t[3]\n]\n"},
		{"native as the engine writes it", "GET", "/", url.Values{"query": {"SELECT 1 AS n FORMAT Native"}}, "", 200, "\x01\x01\x01n\x05UInt8\x01"},
		{"native of a revision", "GET", "/", url.Values{"query": {"SELECT 1 AS n FORMAT Native"}, "client_protocol_version": {"54460"}}, "", 200, "\x01\x00\x02\xff\xff\xff\xff\x00\x01\x01\x01n\x05UInt8\x00\x01"},
		{"native of an older revision", "GET", "/", url.Values{"query": {"SELECT 1 AS n FORMAT Native"}, "client_protocol_version": {"54000"}}, "", 200, "\x01\x00\x02\xff\xff\xff\xff\x00\x01\x01\x01n\x05UInt8\x01"},
		{"error", "GET", "/", url.Values{"query": {"SELECT nothing"}}, "", 500, "Code: 47. "},
		{"unknown format", "GET", "/", url.Values{"query": {"SELECT 1 FORMAT Nothing"}}, "", 500, "Code: 73. "},
		{"unknown database", "GET", "/", url.Values{"query": {"SELECT 1"}, "database": {"no`where"}}, "", 500, "Code: 81. "},
		{"database", "GET", "/", url.Values{"query": {"SELECT currentDatabase()"}, "database": {"system"}}, "", 200, "system\n"},
		{"database again", "GET", "/", url.Values{"query": {"SELECT currentDatabase()"}}, "", 200, "default\n"},
		{"empty", "POST", "/", nil, " ", 500, "Code: 62. "},
		{"compressed blocks in a request", "POST", "/", url.Values{"decompress": {"1"}}, "SELECT 1", 500, "Code: 48. "},
		{"insert by a reader", "POST", "/", url.Values{"query": {"INSERT INTO t FORMAT CSV"}}, "1\n", 500, "Code: 164. "},
		{"too long", "POST", "/", nil, strings.Repeat(" ", 5<<20), 500, "Code: 396. "},
		{"create", "POST", "/migrator", nil, "CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n", 200, ""},
		{"insert rows", "POST", "/writer", url.Values{"query": {"INSERT INTO t FORMAT CSV"}}, "1\n2\n", 200, ""},
		{"insert values", "POST", "/writer", url.Values{"query": {"INSERT INTO t VALUES"}}, "(3), (4)", 200, ""},
		{"insert in the statement", "POST", "/writer", nil, "INSERT INTO t VALUES (5)", 200, ""},
		{"insert rows in the statement", "POST", "/writer", nil, "INSERT INTO t FORMAT CSV\n6\n", 200, ""},
		{"insert of a query", "POST", "/writer", url.Values{"query": {"INSERT INTO t SELECT 7"}}, "", 200, ""},
		{"insert by default_format", "POST", "/writer", url.Values{"query": {"INSERT INTO t (n)"}, "default_format": {"TSV"}}, "8\n", 200, ""},
		{"insert of no rows", "POST", "/writer", url.Values{"query": {"INSERT INTO t FORMAT CSV"}}, "", 200, ""},
		{"insert of nonsense", "POST", "/writer", url.Values{"query": {"INSERT INTO t FORMAT CSV"}}, "nonsense\n", 500, "Code: 117. "},
		{"rows", "GET", "/", url.Values{"query": {"SELECT groupArray(n) FROM (SELECT n FROM t ORDER BY n)"}}, "", 200, "[1,2,3,4,5,6,7,8]\n"},
		{"not found", "GET", "/other", nil, "", 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, text, header := send(t, client, tt.method, tt.path, tt.values, strings.NewReader(tt.body))
			if status != tt.status {
				t.Fatalf("got status %d (%q), want %d", status, text, tt.status)
			}
			if status == 200 && text != tt.want {
				t.Errorf("got %q, want %q", text, tt.want)
			}
			if code, _, _ := strings.Cut(strings.TrimPrefix(tt.want, "Code: "), "."); status == 500 {
				if got := header.Get("X-ClickHouse-Exception-Code"); got != code || !strings.HasPrefix(text, tt.want) {
					t.Errorf("got code %q (%q), want %q", got, text, code)
				}
			}
		})
	}
}

// cutReader ends a body in the middle, like a client that dies.
type cutReader struct{ text io.Reader }

func (c cutReader) Read(p []byte) (int, error) {
	n, err := c.text.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestCutInsertStoresNothing(t *testing.T) {
	engine := chdbtest.Start(t)
	writer := open(t, engine, chdb.RoleWriter)
	exec(t, writer, "CREATE TABLE cut (n UInt64) ENGINE = MergeTree ORDER BY n")
	client := overSocket(t, engine.Socket())
	body := cutReader{strings.NewReader(strings.Repeat("1\n", 200_000))}
	query := url.Values{"query": {"INSERT INTO cut FORMAT CSV"}}
	request, err := http.NewRequestWithContext(t.Context(), "POST", "http://engine/writer?"+query.Encode(), body)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := client.Do(request); err == nil {
		response.Body.Close()
		t.Fatalf("got %s, want a broken request", response.Status)
	}
	exec(t, writer, "INSERT INTO cut VALUES (2)")
	if got := value[uint64](t, writer, "SELECT sum(n) FROM cut"); got != 2 {
		t.Errorf("got sum %d, want 2: the cut insert was stored", got)
	}
}

func TestDeduplicationToken(t *testing.T) {
	engine := chdbtest.Start(t)
	writer := open(t, engine, chdb.RoleWriter)
	exec(t, writer, "CREATE TABLE once (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 100")
	for i, token := range []string{"a'b", "a'b", "c", ""} {
		ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"insert_deduplication_token": token}))
		batch, err := writer.PrepareBatch(ctx, "INSERT INTO once (n)")
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Append(uint64(i)); err != nil {
			t.Fatal(err)
		}
		if err := batch.Send(); err != nil {
			t.Fatal(err)
		}
	}
	if got := value[[]uint64](t, writer, "SELECT arraySort(groupArray(n)) FROM once"); fmt.Sprint(got) != "[0 2 3]" {
		t.Errorf("got rows %v, want [0 2 3]", got)
	}
}
