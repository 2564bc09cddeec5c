package chdb_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// listen opens the engine to read-only clients and returns the base of their URLs.
func listen(t *testing.T, engine *chdb.Engine) string {
	t.Helper()
	address, err := engine.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return "http://" + address
}

// ask sends a query as a read-only client and returns the status and the text of the answer.
func ask(t *testing.T, base, sql string) (int, string) {
	t.Helper()
	status, text, _ := request(t, "POST", base+"/", sql, nil)
	return status, text
}

func TestReadonlyClientsOnlyRead(t *testing.T) {
	base := listen(t, chdbtest.Start(t))
	address := strings.TrimPrefix(base, "http://")
	for _, tt := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"query", "POST", "/?query=SELECT+1", nil, 200},
		{"get", "GET", "/?query=SELECT+1", nil, 200},
		{"head", "HEAD", "/ping", nil, 200},
		{"localhost", "POST", "/?query=SELECT+1", http.Header{"Host": {"localhost"}}, 200},
		{"rebound name", "POST", "/?query=SELECT+1", http.Header{"Host": {"rebound.example"}}, 403},
		{"page of another server", "POST", "/?query=SELECT+1", http.Header{"Origin": {"http://page.example"}}, 403},
		{"page without a server", "POST", "/?query=SELECT+1", http.Header{"Origin": {"null"}}, 403},
		{"image of another server", "GET", "/?query=SELECT+1", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{"preflight", "OPTIONS", "/?query=SELECT+1", http.Header{"Access-Control-Request-Method": {"POST"}}, 405},
		{"delete", "DELETE", "/", nil, 405},
		{"writer", "POST", "/writer?query=SELECT+1", nil, 404},
		{"migrator", "POST", "/migrator?query=SELECT+1", nil, 404},
		{"attach", "POST", "/attach?id=x", nil, 404},
		{"listen", "POST", "/listen?id=x&address=127.0.0.1:0", nil, 404},
		{"create", "POST", "/?query=CREATE+TABLE+a+(n+Int8)+ENGINE=Memory", nil, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, text, header := request(t, tt.method, "http://"+address+tt.path, "", tt.header)
			if status != tt.status {
				t.Errorf("got status %d (%q), want %d", status, text, tt.status)
			}
			for name := range header {
				if strings.HasPrefix(name, "Access-Control") {
					t.Errorf("the answer opens the engine to web pages by %s: %s", name, header.Get(name))
				}
			}
		})
	}
}

func TestAddressIsSharedAndClosed(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	first, second := start(t, options), start(t, options)
	address, err := first.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{address, "127.0.0.1:0", strings.Replace(address, "127.0.0.1", "localhost", 1)} {
		if got, err := second.Listen(t.Context(), same); err != nil || got != address {
			t.Errorf("%s: got %q (%v), want %q", same, got, err, address)
		}
	}
	_, err = second.Listen(t.Context(), "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "already answers ClickHouse clients elsewhere: at "+address) {
		t.Errorf("got %v, want an error that names %s", err, address)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(t, "http://"+address, "SELECT 1"); status != 200 || text != "1\n" {
		t.Errorf("got %d %q after one of two owners left", status, text)
	}
	third := start(t, options)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the address is open although its last owner left")
	}
	if got, err := third.Listen(t.Context(), address); err != nil || got != address {
		t.Errorf("opening it again: got %q (%v), want %q", got, err, address)
	}
}

func TestListenRefusals(t *testing.T) {
	engine := chdbtest.Start(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		"0.0.0.0:0":             "loopback",
		"[::]:8123":             "loopback",
		":8123":                 "loopback",
		"192.0.2.1:8123":        "loopback",
		"example.com:8123":      "loopback",
		"8123":                  "loopback",
		taken.Addr().String():   "address already in use",
		"127.0.0.1:notanumber!": "listen",
	} {
		if _, err := engine.Listen(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", address, err, want)
		}
	}
	// A client that is not attached cannot open an address that nobody would close.
	for _, id := range []string{"", "stranger"} {
		status, text, _ := send(t, overSocket(t, engine.Socket()), "POST", "/listen", url.Values{"id": {id}, "address": {"127.0.0.1:0"}}, nil)
		if status != http.StatusConflict {
			t.Errorf("id %q: got %d %q, want 409", id, status, text)
		}
	}
}

func TestAddressGoesWithAnOwnerThatDied(t *testing.T) {
	address, die := listenAs(t, overSocket(t, chdbtest.Start(t).Socket()), "other")
	if status, text := ask(t, "http://"+address, "SELECT 1"); status != 200 {
		t.Fatalf("got %d %q", status, text)
	}
	http.DefaultClient.CloseIdleConnections()
	die()
	retry(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// listenAs attaches a client, which opens an address. The attachment ends by die.
func listenAs(t *testing.T, client *http.Client, id string) (address string, die context.CancelFunc) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	attach, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/attach?id="+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	attachment, err := client.Do(attach)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attachment.Body.Close() })
	status, text, _ := send(t, client, "POST", "/listen", url.Values{"id": {id}, "address": {"127.0.0.1:0"}}, nil)
	var answer struct{ Address string }
	if err := json.Unmarshal([]byte(text), &answer); status != 200 || err != nil {
		t.Fatalf("got %d %q (%v), want an address", status, text, err)
	}
	return answer.Address, die
}

// TestReleaseFreesTheAddress: the address is closed when a release is answered, also while the end of the attachment is
// still closing it.
func TestReleaseFreesTheAddress(t *testing.T) {
	client := overSocket(t, chdbtest.Start(t).Socket())
	for i := range 200 {
		id := strconv.Itoa(i)
		address, die := listenAs(t, client, id)
		die()
		if status, text, _ := send(t, client, "POST", "/release", url.Values{"id": {id}}, nil); status != 200 {
			t.Fatalf("got %d %q", status, text)
		}
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Fatal("the address is open after its owner was released")
		}
	}
}

func TestAddressOutlivesACrash(t *testing.T) {
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	if err := syscall.Kill(engine.ChildPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The socket answers before the address does, which follows at once.
	value[uint8](t, open(t, engine, chdb.RoleReader), "SELECT 1")
	http.DefaultClient.CloseIdleConnections()
	address := strings.TrimPrefix(base, "http://")
	retry(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if status, text := ask(t, base, "SELECT 1"); status != 200 {
		t.Errorf("got %d %q after a crash", status, text)
	}
}
