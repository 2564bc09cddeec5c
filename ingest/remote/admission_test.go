package remote

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/wire"
)

// TestPermits: the first matching entry of a name gives its limits; without a match there are
// none.
func TestPermits(t *testing.T) {
	a := Admission{
		Limits: Limits{RequestRate: 9},
		Permits: []Permit{
			{Name: "host1", Limits: Limits{RequestRate: 1}},
			{Name: "rack1-*", Limits: Limits{RequestRate: 2}},
			{Name: "rack1-special", Limits: Limits{RequestRate: 3}},
			{Name: "spiffe://dc/*/exporter"},
			{Name: "a*b*c", Limits: Limits{MaxStreams: 7}},
			{Name: "*-last", Limits: Limits{RequestRate: 4}},
			{Name: "host2-last", Limits: Limits{RequestRate: 5}},
		},
	}
	in, err := newAdmitted(&a, &edge.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"host1": 1, "host10": 0, "host": 0, "xhost1": 0, "rack1-": 2, "rack1-7": 2, "rack1-special": 2, "rack1": 0, "rack10-1": 0,
		"spiffe://dc/rack/7/exporter": 9, "spiffe://dc/exporter": 0, "spiffe://dc/x/exporter/": 0, "abc": 9, "a-b-c": 9, "acb": 0, "ab": 0, "ac": 0,
		"host2-last": 4, "-last": 4, "": 0, "*": 0,
	} {
		var got float64
		if l := in.of(name); l != nil {
			got = l.RequestRate
		}
		if got != want {
			t.Errorf("%q: %g requests a second, want %g", name, got, want)
		}
	}
	if l := in.of("abc"); l.MaxStreams != 7 || l.MaxWindowRows != 20_000 {
		t.Errorf("%+v: want own limits before the collector's", l)
	}
	for _, tc := range []struct {
		auth    edge.Auth
		permits []Permit
		want    string
	}{
		{edge.Auth{Clients: "t"}, nil, ""},
		{edge.Auth{TLS: edge.TLSFiles{CA: "ca"}}, nil, "any certificate of this authority"},
		{edge.Auth{TLS: edge.TLSFiles{CA: "ca"}, Clients: "t"}, nil, "any certificate of this authority"},
		{edge.Auth{TLS: edge.TLSFiles{CA: "ca"}}, everybody, ""},
		{edge.Auth{Anonymous: edge.Peer{Name: "local"}}, []Permit{{Name: "host1"}}, "anonymous: local is not among"},
		{edge.Auth{Anonymous: edge.Peer{Name: "local"}}, []Permit{{Name: "loc*"}}, ""},
		{edge.Auth{}, []Permit{{Name: "host1"}, {Name: "host1"}}, "host1 is listed twice"},
		{edge.Auth{}, []Permit{{Name: ""}}, "expected 1 to 256 bytes"},
		{edge.Auth{}, []Permit{{Name: "host1", Limits: Limits{RowRate: 10}}}, "exporters: host1: limits"},
	} {
		a := Admission{Permits: tc.permits}
		if err := a.Check(&tc.auth); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v, %+v: %v, want %q", tc.auth, tc.permits, err, tc.want)
		}
	}
}

// TestNotListed: an authority may sign for clients other than exporters. An unlisted name
// cannot export by certificate or token, and the log names it.
func TestNotListed(t *testing.T) {
	ca, dir, log := edgetest.NewAuthority(t), t.TempDir(), &logBuffer{}
	tokens := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("rack1-a", "", "good", ""), edgetest.TokenLine("printer", "", "other", ""))
	cfg := testConfig(t)
	cfg.Auth, cfg.Logger = edge.Auth{TLS: ca.Server(), Clients: tokens}, log.logger()
	cfg.Permits = []Permit{{Name: "rack1-*"}, {Name: "rack2-a"}}
	s := startCollector(t, cfg, newLedger(), "")
	hour := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		name, token string
		good        bool
	}{
		{"rack1-a", "", true}, {"rack2-a", "", true}, {"rack2-b", "", false}, {"printer", "", false}, {"", "good", true}, {"", "other", false},
	} {
		client := clientConfig(t, s.url)
		if client.TLS = (edge.TLSFiles{CA: ca.File}); tc.name != "" {
			client.TLS = ca.Issue(tc.name, hour)
		} else {
			client.TokenFile = filepath.Join(dir, tc.token)
			if err := os.WriteFile(client.TokenFile, []byte(tc.token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := pushOnce(t, client, validRequest(t, 1))
		if tc.good && err != nil || !tc.good && (connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "no list of the server has its name")) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	st := s.Stats()
	if st.Unauthenticated.Refused[Reason(edge.NotListed)] != 3 || len(st.Exporters) != 2 {
		t.Errorf("%+v, want 3 refused; exporters %+v", st.Unauthenticated.Refused, st.Exporters)
	}
	if text := log.String(); !strings.Contains(text, "reason=not_listed") || !strings.Contains(text, `subject="CN=rack2-b"`) {
		t.Errorf("log %s", text)
	}
}

// TestPermitLimits: each exporter has the limits of its entry, and new ones as soon as they are
// applied, without a fresh budget.
func TestPermitLimits(t *testing.T) {
	cfg, clock := testConfig(t), newClock()
	cfg.Auth, cfg.Now, cfg.Logger = edge.Auth{Anonymous: edge.Peer{Name: "slow"}}, clock.now, nil
	cfg.Permits = []Permit{{Name: "slow", Limits: Limits{RequestRate: 0.2}}, {Name: "*"}}
	s := startCollector(t, cfg, newLedger(), "")
	seq := uint64(0)
	taken := func(n int) (good int) {
		for range n {
			seq++
			switch _, err := pushTo(t, s, validRequest(t, seq)); {
			case err == nil:
				good++
			case connect.CodeOf(err) != connect.CodeResourceExhausted:
				t.Errorf("%v, want to be told to come later", err)
			}
		}
		return good
	}
	if n := taken(5); n != 2 { // in a burst of 10 s
		t.Errorf("%d taken, want 2", n)
	}
	if err := s.Use(Admission{Permits: []Permit{{Name: "slow", Limits: Limits{RequestRate: 2}}}}, nil); err != nil {
		t.Fatal(err)
	}
	if n := taken(3); n != 0 {
		t.Errorf("%d taken at once, want 0", n)
	}
	clock.add(2 * time.Second)
	if n := taken(10); n != 4 {
		t.Errorf("%d taken 2 s later, want 4", n)
	}
	if err := s.Use(Admission{Permits: []Permit{{Name: "other"}}}, nil); err == nil {
		t.Error("a list without the anonymous exporter is in force")
	}
	if n := taken(1); n != 0 || s.admitted.Load().of("slow") == nil {
		t.Errorf("%d taken: a list that is wrong changes something", n)
	}
}

// taken returns the number of stored blocks.
func (l *ledger) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocks
}

// rawPush sends the first half of a request and returns the second.
func rawPush(t *testing.T, conn net.Conn, header string) (rest []byte) {
	t.Helper()
	body, err := proto.Marshal(validRequest(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	half := len(body) / 2
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\nContent-Length: %d\r\n%s\r\n%s",
		wire.IngestServicePushProcedure, len(body), header, body[:half]); err != nil {
		t.Fatal(err)
	}
	return body[half:]
}

// atWork returns the number of running requests of an exporter.
func (c *collector) atWork(name string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.exporters[name]; e != nil {
		return e.inFlight.Load()
	}
	return 0
}

// TestRevoked: an exporter removed from the list or the token file is refused: running requests
// store nothing, and connections with certificates are cut.
func TestRevoked(t *testing.T) {
	ca, tokens := edgetest.NewAuthority(t), filepath.Join(t.TempDir(), "tokens")
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("byToken", "", "good", ""))
	cfg, clock, l := testConfig(t), newClock(), newLedger()
	cfg.Auth, cfg.Now, cfg.Logger = edge.Auth{TLS: ca.Server(), Clients: tokens}, clock.now, nil
	cfg.Permits = []Permit{{Name: "rack*"}, {Name: "by*"}}
	s := startCollector(t, cfg, l, "")
	dial := func(name string) *tls.Conn {
		t.Helper()
		o := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
		if name != "" {
			o.Certificates = []tls.Certificate{loadPair(t, ca.Issue(name, time.Now().Add(time.Hour)))}
		}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	begun, idle, stays := dial("rack1"), dial("rack1"), dial("rack2")
	for _, c := range []*tls.Conn{idle, stays} {
		rest := rawPush(t, c, "")
		if _, err := c.Write(rest); err != nil {
			t.Fatal(err)
		}
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", r, err)
		}
	}
	rawPush(t, begun, "")
	slow := dial("")
	rest := rawPush(t, slow, "Authorization: Bearer good\r\n")
	wait(t, "both requests are under way", func() bool { return s.atWork("rack1") == 1 && s.atWork("byToken") == 1 })
	before := l.taken()

	if err := s.Use(Admission{Permits: []Permit{{Name: "rack2"}, {Name: "by*"}}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*tls.Conn{begun, idle} {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // an idle connection would end after 3 minutes
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); bytes.Contains(text, []byte("200 OK")) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v: want a connection that is cut", text, err)
		}
	}
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("byOther", "", "other", ""))
	clock.add(2 * time.Second)
	if _, err := slow.Write(rest); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || r.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v: want what came after the token went refused", r, err)
	}
	rest = rawPush(t, stays, "")
	if _, err := stays.Write(rest); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(stays), nil); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("an exporter that is still listed: %v, %v", r, err)
	}
	if n := l.taken() - before; n != 0 {
		t.Errorf("%d blocks stored of exporters that are out", n)
	}
}

// TestRemovedExporters: an exporter or a peer that is removed from the token file or the list is not expected any more. What
// it sent still counts.
func TestRemovedExporters(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	line := func(name string) string { return edgetest.TokenLine(name, "", "secret-of-"+name, "") }
	edgetest.WriteTokens(t, tokens, line("host1"), line("host2"), line("host3"))
	cfg, clock := testConfig(t), newClock()
	cfg.Auth, cfg.Now, cfg.Logger = edge.Auth{Clients: tokens}, clock.now, nil
	s := startCollector(t, cfg, newLedger(), "")
	for _, name := range []string{"host1", "host2"} {
		if _, err := pushWith(t, s, name, validRequest(t, 1)); err != nil {
			t.Fatal(err)
		}
	}
	s.client("collector2", &s.limits, true)
	names := func(list []ExporterStats) (text string) {
		for _, e := range list {
			text += e.Name + " "
		}
		return text
	}
	for _, step := range []struct {
		tokens                    []string
		admission                 Admission
		exporters, removed, peers string
	}{
		{nil, Admission{Peers: []string{"collector2"}}, "host1 host2 host3 ", "", "collector2 "},
		{nil, Admission{}, "host1 host2 host3 ", "", ""},
		{nil, Admission{Permits: []Permit{{Name: "host2"}}}, "host2 ", "host1 ", ""},
		{[]string{line("host2")}, Admission{}, "host2 ", "host1 ", ""},
		{[]string{line("host1")}, Admission{}, "host1 ", "host2 ", ""},
	} {
		if step.tokens != nil {
			edgetest.WriteTokens(t, tokens, step.tokens...)
			clock.add(2 * time.Second)
		}
		if err := s.Use(step.admission, nil); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		if names(st.Exporters) != step.exporters || names(st.Removed) != step.removed || names(st.Peers) != step.peers || st.Total.StoredItems != 2 {
			t.Errorf("%+v: exporters %s, removed %s, peers %s, %d items stored, want 2", step, names(st.Exporters), names(st.Removed), names(st.Peers), st.Total.StoredItems)
		}
	}
}

// TestForeignOrigin: on loopback, requests under a foreign host name are refused, and
// everywhere those of a web page; both are counted.
func TestForeignOrigin(t *testing.T) {
	for _, tc := range []struct {
		address, host, header string
		want                  int
	}{
		{"127.0.0.1:0", "evil.example", "", http.StatusForbidden},
		{"127.0.0.1:0", "127.0.0.1.evil.example:80", "", http.StatusForbidden},
		{"127.0.0.1:0", "localhost", "", http.StatusOK},
		{"127.0.0.1:0", "[::1]:4319", "", http.StatusOK},
		{"127.0.0.1:0", "localhost", "Origin: http://evil.example", http.StatusForbidden},
		{"127.0.0.1:0", "localhost", "Sec-Fetch-Site: cross-site", http.StatusForbidden},
		{"0.0.0.0:0", "collector.example", "", http.StatusOK},
		{"0.0.0.0:0", "collector.example", "Origin: http://evil.example", http.StatusForbidden},
	} {
		cfg, l := testConfig(t), newLedger()
		cfg.Logger = nil
		s := startCollector(t, cfg, l, tc.address)
		body, err := proto.Marshal(validRequest(t, 1))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:"+port+wire.IngestServicePushProcedure, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tc.host
		r.Header.Set("Content-Type", "application/proto")
		if name, value, ok := strings.Cut(tc.header, ": "); ok {
			r.Header.Set(name, value)
		}
		transport := &http.Transport{}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		transport.CloseIdleConnections()
		refused := s.Stats().Unauthenticated.Refused[Reason(edge.ForeignOrigin)]
		if good := tc.want == http.StatusOK; answer.StatusCode != tc.want || (l.taken() == 1) != good || (refused == 0) != good {
			t.Errorf("%+v: %d, %d blocks stored, %d counted", tc, answer.StatusCode, l.taken(), refused)
		}
	}
}

// TestSpoolInUse: the error says what to do about a second exporter with the same spool.
func TestSpoolInUse(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	c, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	want := "open spool " + client.Dir + ": in use by another process: end the other csigscope export, or name another folder with --spool"
	if _, err := OpenClient(client); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestIngestAddressInUse: the error names the flag of the address.
func TestIngestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := testConfig(t)
	cfg.Listen = taken.Addr().String()
	s, err := NewServer(cfg, newLedger(), newLedger())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "choose another port with --ingest-listen") {
		t.Errorf("%v", err)
	}
}

// TestCheckCollector: beyond loopback, rows require TLS.
func TestCheckCollector(t *testing.T) {
	for url, want := range map[string]string{
		"https://collector.example:4319": "", "http://127.0.0.1:4319": "", "http://localhost:4319": "", "http://[::1]:4319": "",
		"http://collector.example:4319": "expected https", "http://10.0.0.1:4319": "expected https", "http://localhost.evil.example": "expected https",
		"collector.example:4319": "expected a URL", "ftp://localhost": "expected a URL", "https://": "expected a URL", "http://[": "expected a URL",
		"127.0.0.1:4319": "expected a URL", "[::1]:4319": "expected a URL", "https://collector.example:x": "expected a URL",
	} {
		if err := CheckCollector(url, edge.TLSFiles{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if _, err := OpenClient(ClientConfig{Collectors: []string{url}, Dir: filepath.Join(t.TempDir(), "spool")}); want != "" && err == nil {
			t.Errorf("%s: an exporter hands in there", url)
		}
	}
	if err := CheckCollector("http://127.0.0.1:4319", edge.TLSFiles{CA: "ca"}); err == nil {
		t.Error("TLS files have no effect, and no error says so")
	}
}

// TestWrongBesideGood: wrong credentials from the address of a valid exporter do not delay it.
func TestWrongBesideGood(t *testing.T) {
	ca, foreign, dir := edgetest.NewAuthority(t), edgetest.NewAuthority(t), t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("host1", "", "good", ""))
	cfg, clock := testConfig(t), newClock()
	cfg.Auth, cfg.Permits, cfg.Now, cfg.Logger = edge.Auth{TLS: ca.Server(), Clients: tokens}, everybody, clock.now, nil
	s := startCollector(t, cfg, newLedger(), "")
	open := func(tls edge.TLSFiles, token string) *Client {
		t.Helper()
		client := clientConfig(t, s.url)
		client.TLS = edge.TLSFiles{Cert: tls.Cert, Key: tls.Key, CA: ca.File}
		if token != "" {
			client.TokenFile = filepath.Join(dir, token)
			if err := os.WriteFile(client.TokenFile, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := OpenClient(client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	hour := time.Now().Add(time.Hour)
	wrong := []*Client{open(foreign.Issue("host1", hour), ""), open(edge.TLSFiles{}, "bad")}
	good := []*Client{open(ca.Issue("host1", hour), ""), open(edge.TLSFiles{}, "good")}
	const seconds, each = 20, 5
	for range seconds * each {
		for _, c := range wrong {
			if _, err := c.push(t.Context(), nil); err == nil {
				t.Fatal("a wrong credential is taken")
			}
		}
		for _, c := range good {
			if _, err := c.push(t.Context(), nil); err != nil {
				t.Fatalf("a good credential beside wrong ones: %v", err)
			}
		}
		clock.add(time.Second / each)
	}
	// An HTTP/2 client dials again if the alert arrives before its request is written, so a
	// push may be refused on two connections.
	if st := s.Stats().Unauthenticated.Refused; st[Reason(edge.UnknownToken)] != seconds*each || st[Reason(edge.ForeignCertificate)] < seconds*each {
		t.Errorf("refused %+v", st)
	}
}
