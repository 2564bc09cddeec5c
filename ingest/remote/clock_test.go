package remote

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// TestClockOffset: the fastest request of the last minutes determines the offset.
func TestClockOffset(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	var c clockOffset
	if got := c.ahead(start); got != 0 {
		t.Errorf("nothing is known: %s", got)
	}
	for _, step := range []struct {
		after       time.Duration // since the first one
		ahead, took time.Duration // true values
		text        string        // raw header instead
		want        time.Duration
	}{
		{0, 3 * time.Second, 100 * time.Millisecond, "", 2900 * time.Millisecond},
		{time.Second, 3 * time.Second, time.Millisecond, "", 2999 * time.Millisecond},
		{2 * time.Second, 3 * time.Second, time.Second, "", 2999 * time.Millisecond},
		{3 * time.Second, 0, 0, "soon", 2999 * time.Millisecond},
		{3 * time.Second, 0, 0, "-1", 2999 * time.Millisecond},
		{3 * time.Second, 0, 0, "99999999999999999999", 2999 * time.Millisecond},
		{offsetSpan, -time.Second, time.Millisecond, "", 2999 * time.Millisecond}, // set back: the earlier sample still counts
		{2 * offsetSpan, -time.Second, 2 * time.Millisecond, "", -1001 * time.Millisecond},
		{4 * offsetSpan, time.Second, 0, "9223372036854775807", 9223372036854775807 - time.Duration(start.Add(4*offsetSpan).UnixNano())},
	} {
		came := start.Add(step.after)
		text := step.text
		if text == "" {
			text = strconv.FormatInt(came.Add(step.ahead-step.took).UnixNano(), 10)
		}
		c.observe(http.Header{http.CanonicalHeaderKey(sentAt): {text}}, came)
		if got := c.ahead(came); got != step.want {
			t.Errorf("after %s: %s, want %s", step.after, got, step.want)
		}
	}
	if got := c.ahead(start.Add(6 * offsetSpan)); got != 0 {
		t.Errorf("long after the last request: %s", got)
	}
}

// wait waits for a condition.
func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	// The timeout is long, so that a busy machine cannot cause a failure.
	for begun := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s: does not come true", what)
		}
	}
}

// TestHello: an idle exporter is known to be alive on both sides, and its clock is compared.
func TestHello(t *testing.T) {
	const behind = time.Hour
	cfg := testConfig(t)
	cfg.Now = func() time.Time { return time.Now().Add(behind) }
	c := startCollector(t, cfg, newLedger(), "")
	client := clientConfig(t, c.url)
	client.HelloEvery, client.MaxBytes, client.Logger = time.Millisecond, 1<<21, nil
	e, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	if s := e.Stats(); s.Answering || s.SpoolLimit != 1<<21 || !s.Oldest.IsZero() {
		t.Errorf("before anything was sent: %+v", s)
	}
	e.Close()
	x := startClient(t, client)
	wait(t, "the collector answers", func() bool { return x.Stats().Answering && x.Stats().Pushes > 3 })
	st := c.Stats()
	if len(st.Exporters) != 1 || st.Exporters[0].Requests == 0 || st.Exporters[0].Items != 0 {
		t.Fatalf("exporters: %+v", st.Exporters)
	}
	if got := st.Exporters[0].ClockOffset; got > -behind || got < -behind-time.Minute {
		t.Errorf("clock is ahead by %s, want somewhat less than %s", got, -behind)
	}
	c.stop()
	wait(t, "it is seen that the collector is away", func() bool { return !x.Stats().Answering })
	if err := x.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, 1), time.Now(), 50)); err != nil {
		t.Fatal(err)
	}
	wait(t, "the spool holds it", func() bool { return x.Stats().SpoolBytes > 0 && !x.Stats().Oldest.IsZero() })
}

// TestExpected: exporters with a token or listed by name are in the counts before they connect.
// An exporter with a token that the list omits is not.
func TestExpected(t *testing.T) {
	const secret = "a-token-of-host1"
	tokens := filepath.Join(t.TempDir(), "tokens")
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("host1", "", secret, ""), edgetest.TokenLine("host1", "", "another", ""), edgetest.TokenLine("host2", "", "third", ""), edgetest.TokenLine("left", "", "fourth", ""))
	cfg := testConfig(t)
	cfg.Auth, cfg.Permits = edge.Auth{Clients: tokens}, []Permit{{Name: "host3"}, {Name: "host2"}, {Name: "host*"}}
	c := startCollector(t, cfg, newLedger(), "")
	client := clientConfig(t, c.url)
	if client.TokenFile = filepath.Join(t.TempDir(), "token"); os.WriteFile(client.TokenFile, []byte(secret), 0o600) != nil {
		t.Fatal("no token")
	}
	seen := func() string {
		var list []string
		for _, e := range c.Stats().Exporters {
			list = append(list, e.Name+" "+strconv.FormatBool(!e.Last.IsZero()))
		}
		return strings.Join(list, ", ")
	}
	if got, want := seen(), "host1 false, host2 false, host3 false"; got != want {
		t.Errorf("before anybody came: %s, want %s", got, want)
	}
	x := startClient(t, client)
	wait(t, "the collector answers", func() bool { return x.Stats().Answering })
	if got, want := seen(), "host1 true, host2 false, host3 false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	cfg.Permits = []Permit{{Name: "a\nb"}}
	if _, err := NewServer(cfg, newLedger(), newLedger()); err == nil {
		t.Error("a name that cannot be is taken")
	}
}
