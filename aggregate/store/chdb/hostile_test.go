package chdb_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// trap is an address that must never receive a connection.
type trap struct {
	address string
	caught  atomic.Int64
}

func newTrap(t *testing.T) *trap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	tr := &trap{address: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tr.caught.Add(1)
			conn.Close()
		}
	}()
	return tr
}

// TestReadonlyClientsReachNothing has a client try to write, to change settings, to read
// files and to use the network.
func TestReadonlyClientsReachNothing(t *testing.T) {
	skipShort(t)
	engine := chdbtest.Start(t)
	exec(t, open(t, engine, chdb.RoleMigrator), "CREATE TABLE safe (n UInt64, s String) ENGINE = MergeTree ORDER BY n", "INSERT INTO safe VALUES (1, 'kept')")
	base, network := listen(t, engine), newTrap(t)
	const content = "not for read-only clients"
	secret := filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(secret, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), "written")
	replace := strings.NewReplacer("SECRET", secret, "ADDRESS", network.address, "WRITTEN", written)
	for _, sql := range []string{
		"SELECT * FROM safe INTO OUTFILE 'WRITTEN'", "SELECT * FROM safe INTO OUTFILE 'WRITTEN' TRUNCATE FORMAT CSV",
		"SELECT * FROM url('http://ADDRESS/', 'CSV', 'a String')", "SELECT * FROM url('http://ADDRESS/', 'CSV')", "SELECT * FROM URL('http://ADDRESS/')",
		"SELECT * FROM urlCluster('c', 'http://ADDRESS/', 'CSV')", "SELECT * FROM `http://ADDRESS/a.csv`",
		"SELECT * FROM file('SECRET')", "SELECT * FROM fileCluster('c', 'SECRET')", "SELECT * FROM `SECRET`", "SELECT * FROM 'SECRET'", "SELECT * FROM default.`SECRET`",
		"SELECT file('SECRET')", "SELECT * FROM filesystem('SECRET')", "SELECT * FROM sqlite('SECRET', 't')",
		"SELECT * FROM remote('ADDRESS', system.one)", "SELECT * FROM remoteSecure('ADDRESS', system.one)", "SELECT * FROM cluster('default', system.one)",
		"SELECT * FROM mysql('ADDRESS', 'd', 't', 'u', 'p')", "SELECT * FROM postgresql('ADDRESS', 'd', 't', 'u', 'p')", "SELECT * FROM mongodb('ADDRESS', 'd', 't', 'u', 'p', 'a String')",
		"SELECT * FROM redis('ADDRESS', 'k', 'k String')", "SELECT * FROM s3('http://ADDRESS/bucket/key', 'CSV', 'a String')", "SELECT * FROM jdbc('ADDRESS', 't')", "SELECT * FROM odbc('DSN', 't')",
		"SELECT * FROM executable('cat', 'CSV', 'a String')", "SELECT * FROM eval('SELECT 1')", "SELECT * FROM input('a String')",
		"EXPLAIN SELECT * FROM url('http://ADDRESS/')", "EXPLAIN PIPELINE SELECT * FROM url('http://ADDRESS/', 'CSV', 'a String')", "EXPLAIN QUERY TREE SELECT * FROM url('http://ADDRESS/')",
		"EXPLAIN TABLE OVERRIDE mysql('ADDRESS', 'd', 't', 'u', 'p') PARTITION BY n", "EXPLAIN SELECT file('SECRET')",
		"DESCRIBE url('http://ADDRESS/')", "DESCRIBE TABLE s3('http://ADDRESS/bucket/key', 'CSV')",
		"SELECT (SELECT count() FROM url('http://ADDRESS/', 'CSV', 'a String'))", "WITH x AS (SELECT * FROM url('http://ADDRESS/', 'CSV', 'a String')) SELECT * FROM x",
		"SELECT n IN (SELECT * FROM url('http://ADDRESS/', 'CSV', 'n UInt64')) FROM safe", "SELECT * FROM view(SELECT * FROM url('http://ADDRESS/', 'CSV', 'a String'))",
		"SELECT 1 UNION ALL SELECT count() FROM url('http://ADDRESS/', 'CSV', 'a String')", "SELECT * FROM safe JOIN url('http://ADDRESS/', 'CSV', 'n UInt64') AS u USING n",
		"SELECT * FROM (EXPLAIN SELECT * FROM url('http://ADDRESS/'))",
		"SYSTEM FLUSH LOGS", "SYSTEM SHUTDOWN", "SYSTEM STOP MERGES", "SYSTEM DROP MARK CACHE", "KILL QUERY WHERE 1", "KILL QUERY WHERE 1 SYNC", "KILL MUTATION WHERE 1",
		"SET readonly = 0", "SET max_memory_usage = 0", "SET ROLE ALL", "USE system",
		"SELECT 1 SETTINGS readonly = 0", "SELECT 1 SETTINGS max_memory_usage = 0", "SELECT 1 SETTINGS max_memory_usage = 0, readonly = 0", "SELECT * FROM (SELECT 1 SETTINGS max_memory_usage = 0)",
		"SELECT 1 FORMAT CSV SETTINGS max_execution_time = 0", "SELECT 1 SETTINGS log_comment = 'writer-0'", "SELECT 1 SETTINGS allow_ddl = 1",
		"CREATE DICTIONARY d (n UInt64, s String) PRIMARY KEY n SOURCE(HTTP(URL 'http://ADDRESS/' FORMAT 'CSV')) LIFETIME(1) LAYOUT(FLAT())",
		"SELECT * FROM dictionary('d')", "SELECT dictGet('d', 's', 1)",
		"CREATE TABLE u (a String) ENGINE = URL('http://ADDRESS/', 'CSV')", "CREATE FUNCTION f AS x -> x", "CREATE USER u", "CREATE NAMED COLLECTION c AS a = 1", "CREATE VIEW v AS SELECT 1", "CREATE DATABASE e ENGINE = Filesystem('/')",
		"ATTACH TABLE t UUID '00000000-0000-0000-0000-000000000001' (n UInt8) ENGINE = Memory", "DETACH TABLE safe", "RENAME TABLE safe TO unsafe", "EXCHANGE TABLES safe AND safe", "DROP DATABASE default", "TRUNCATE safe", "DELETE FROM safe WHERE 1", "UPDATE safe SET s = '' WHERE 1", "GRANT ALL ON *.* TO default",
		"BACKUP TABLE safe TO File('WRITTEN')", "RESTORE ALL FROM File('WRITTEN')", "BEGIN TRANSACTION", "WATCH safe", "CHECK GRANT SELECT ON *.*; DROP TABLE safe",
		"SELECT 1; DROP TABLE safe", "SELECT 1;;SELECT 2", "DROP TABLE safe; -- SELECT 1", "INSERT INTO safe VALUES (2, '')", "INSERT INTO FUNCTION url('http://ADDRESS/', 'CSV', 'n UInt64') SELECT 1", "INSERT INTO FUNCTION file('WRITTEN', 'CSV', 'n UInt64') SELECT 1",
		"EXPLAIN INSERT INTO safe SELECT 2, ''", "COPY safe TO 'WRITTEN'",
	} {
		sql = replace.Replace(sql)
		for _, get := range []bool{false, true} {
			method, address, body := "POST", base, sql
			if get {
				method, address, body = "GET", base+"/?query="+escape(sql), ""
			}
			status, text, header := request(t, method, address, body, nil)
			if status != http.StatusInternalServerError || header.Get("X-ClickHouse-Exception-Code") == "" {
				t.Errorf("%s %s: got status %d %.200q, want an exception", method, sql, status, text)
			}
			if strings.Contains(text, content) {
				t.Errorf("%s: the read-only client read the file", sql)
			}
		}
	}
	if _, err := os.Stat(written); err == nil {
		t.Error("a read-only client wrote a file")
	}
	if n := network.caught.Load(); n > 0 {
		t.Errorf("read-only clients made the engine connect %d times", n)
	}
	if _, text := ask(t, base, "SELECT count(), any(s), currentDatabase(), getSetting('readonly') FROM safe"); text != "1\tkept\tdefault\t1\n" {
		t.Errorf("afterwards: got %q", text)
	}
}

// TestEveryTableFunctionIsKnown calls every table function of the engine.
func TestEveryTableFunctionIsKnown(t *testing.T) {
	skipShort(t)
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	harmless := strings.Fields("numbers numbers_mt zeros zeros_mt primes generateSeries generate_series generateRandom values SQLStandardValues null view merge")
	_, names := ask(t, base, "SELECT name FROM system.table_functions")
	refused := 0
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		arguments := "'http://192.0.2.1/'"
		if name == "viewIfPermitted" {
			arguments = "SELECT 1 ELSE null('n UInt8')"
		}
		if _, text := ask(t, base, fmt.Sprintf("SELECT * FROM %s(%s)", name, arguments)); strings.Contains(text, "cannot use table function "+name) {
			refused++
			continue
		}
		if !slices.Contains(harmless, name) {
			t.Errorf("table function %s is neither harmless nor refused", name)
		}
	}
	if refused < 50 {
		t.Errorf("%d table functions were refused, want most of them", refused)
	}
	for _, sql := range []string{
		"SELECT * FROM numbers(2)", "SELECT * FROM values('n UInt8', 1)", "SELECT * FROM generateSeries(1, 3)", "SELECT format('{} {}', 'a', 'b')",
		"SELECT * FROM merge('system', '^one$')", "SELECT * FROM view(SELECT 1)",
	} {
		if status, text := ask(t, base, sql); status != 200 {
			t.Errorf("%s: got %q", sql, text)
		}
	}
}

// TestMonstrousStatements: huge statements are refused soon, with a short text.
func TestMonstrousStatements(t *testing.T) {
	skipShort(t)
	base := listen(t, chdbtest.Start(t))
	for name, sql := range map[string]string{
		"parentheses":        strings.Repeat("(", 100_000) + "SELECT 1",
		"nested expressions": "SELECT " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000),
		"nested arrays":      "SELECT " + strings.Repeat("[", 200_000),
		"nested queries":     strings.Repeat("SELECT * FROM (", 20_000) + "SELECT 1" + strings.Repeat(")", 20_000),
		"nested functions":   "SELECT " + strings.Repeat("abs(", 50_000) + "1" + strings.Repeat(")", 50_000),
		"minus signs":        "SELECT " + strings.Repeat("- ", 100_000) + "1",
		"not":                "SELECT " + strings.Repeat("NOT ", 50_000) + "1",
		"long":               "SELECT '" + strings.Repeat("x", 400_000) + "'",
		"too long":           "SELECT '" + strings.Repeat("x", 600_000) + "'",
		"comment":            "/*" + strings.Repeat("/*", 100_000),
		"quote":              "SELECT '" + strings.Repeat("''", 100_000),
		"zeros":              strings.Repeat("\x00", 100_000),
		"not UTF-8":          strings.Repeat("\xff\xfe", 50_000),
	} {
		began := time.Now()
		status, text := ask(t, base, sql)
		t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
		if status != http.StatusInternalServerError || len(text) > 8<<10 {
			t.Errorf("%s: got status %d and %d bytes (%.200q), want a short exception", name, status, len(text), text)
		}
	}
	// A client that is still sending may see the end of the connection instead.
	if response, err := http.Get(base + "/?query=SELECT+'" + strings.Repeat("x", 1<<20) + "'"); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("huge URL: got %s, want 431", response.Status)
		}
	}
	if status, text := ask(t, base, "SELECT 'still there'"); status != 200 || text != "still there\n" {
		t.Errorf("afterwards: got %d %q", status, text)
	}
}

// TestTooManyConnections: connections beyond the bound are refused, and only as long as the
// others stay.
func TestTooManyConnections(t *testing.T) {
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	address := strings.TrimPrefix(base, "http://")
	var conns []net.Conn
	for range 200 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	last := conns[len(conns)-1]
	answer, err := io.ReadAll(last)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503 ") {
		t.Errorf("the last of %d connections got %q (%v), want 503", len(conns), answer, err)
	}
	if got := value[uint8](t, open(t, engine, chdb.RoleReader), "SELECT 1"); got != 1 {
		t.Errorf("a reader beside them got %d", got)
	}
	for _, conn := range conns {
		conn.Close()
	}
	retry(t, func() bool {
		response, err := http.Get(base + "/ping")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == 200
	})
}
