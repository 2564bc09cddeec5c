package chdb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestChooseEncoding(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                identity,
		"gzip":                            "gzip",
		"GZIP":                            "gzip",
		"deflate, gzip, br, zstd":         "zstd",
		"lz4,zstd,gzip,deflate,br":        "zstd",
		"br":                              identity,
		"*":                               identity,
		"identity":                        identity,
		"gzip;q=0":                        identity,
		"gzip;q=0.5, deflate;q=0.8":       "deflate",
		"zstd;q=0.1,gzip ; q=0.2, br;q=1": "gzip",
		"gzip;q=2":                        identity,
		"gzip;q=-1":                       identity,
		"gzip;q=NaN":                      identity,
		"gzip;level=9":                    identity,
		"xgzip, gzipx":                    identity,
	} {
		if got := chooseEncoding(accept); got != want {
			t.Errorf("%q: got %s, want %s", accept, got, want)
		}
	}
}

func TestHeadings(t *testing.T) {
	for _, tt := range []struct {
		format, piece string
		want          int
	}{
		{"CSV", "1\n", 0},
		{"TSVWithNames", "a\\nb\n1\n", 5},
		{"TSVWithNames", "no end", -1},
		{"TabSeparatedWithNamesAndTypes", "a\nUInt8\n1\n", 8},
		{"CSVWithNames", "\"a\"\n1\n", 4},
		{"CSVWithNames", "\"a\n\"\"\n\"\n1\n", 8},
		{"csvwithnames", "\"a\n1\n", -1},
		{"JSONCompactEachRowWithNamesAndTypes", "[\"a\"]\n[\"UInt8\"]\n[1]\n", 16},
		{"RowBinaryWithNames", "\x02\x01a\x01b\x05", 5},
		{"RowBinaryWithNamesAndTypes", "\x01\x01a\x05UInt8\x05", 9},
		{"RowBinaryWithNames", "", -1},
		{"RowBinaryWithNames", "\x02\x01a", -1},
		{"RowBinaryWithNames", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -1},
		{"RowBinaryWithNamesAndTypes", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -1},
	} {
		h, ok := streamHeading(tt.format)
		if !ok {
			t.Errorf("%s is not streamed", tt.format)
			continue
		}
		if got := h([]byte(tt.piece)); got != tt.want {
			t.Errorf("%s of %q: got %d, want %d", tt.format, tt.piece, got, tt.want)
		}
	}
	for _, format := range []string{"JSON", "Native", "Parquet", "ArrowStream", "Pretty", ""} {
		if _, ok := streamHeading(format); ok {
			t.Errorf("%s is streamed", format)
		}
	}
}

// clockedWriter takes a while for each write, on a fake clock.
type clockedWriter struct {
	http.ResponseWriter
	clock time.Time
	takes time.Duration
}

func (c *clockedWriter) Write(p []byte) (int, error) {
	c.clock = c.clock.Add(c.takes)
	return len(p), nil
}

func TestPacedWriter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration // for pieceBytes
		bytes int
		gone  bool
	}{
		{"fast", time.Millisecond, 1 << 30, false},
		{"fast enough", 3900 * time.Millisecond, 64 << 20, false},
		{"too slow", 6 * time.Second, 64 << 20, true},
		{"slow at the end", 50 * time.Second, 2 * pieceBytes, false},
	} {
		w := &clockedWriter{clock: time.Unix(0, 0), takes: tt.takes}
		p := &pacedWriter{w: w, control: http.NewResponseController(httptest.NewRecorder()), now: func() time.Time { return w.clock }}
		n, err := p.Write(make([]byte, tt.bytes))
		if gone := errors.Is(err, errTooSlow); gone != tt.gone || (n == tt.bytes) == tt.gone {
			t.Errorf("%s: wrote %d of %d bytes, %v; want the client gone: %v", tt.name, n, tt.bytes, err, tt.gone)
		}
		if tt.gone && p.waited > 4*stalledClient {
			t.Errorf("%s: the client was waited for for %v", tt.name, p.waited)
		}
	}
}

// TestTokensOfTags: unclosed tags are parsed in linear time. In a text of this length, a search for the end of each one
// would take longer than a test may.
func TestTokensOfTags(t *testing.T) {
	var b strings.Builder
	const long = 32 * maxReadonlyStatement
	for i := 0; b.Len() < long; i++ {
		fmt.Fprintf(&b, "$%d$ ", i)
	}
	if n := len(tokenize(b.String())); n < long/16 {
		t.Errorf("%d tokens", n)
	}
}

func TestNesting(t *testing.T) {
	for sql, want := range map[string]int{
		"": 0, "SELECT 1": 0, "SELECT (1)": 1, "SELECT [(1), {a: 2}]": 2, "SELECT '((('": 0, ")))((": 0, "-- (((\n(": 1,
		"a$x$ ((( $x$": 3, "$x$ ((( $x$": 0, "“(((”": 0, "a‘(((’": 0,
		strings.Repeat("(", 1000): 1000,
	} {
		if got := parseStatement(sql).nesting; got != want {
			t.Errorf("%.20q: got %d, want %d", sql, got, want)
		}
	}
}

// TestOutcomesOfReadonlyClients: a client that leaves counts as left, whatever error its query ended with.
func TestOutcomesOfReadonlyClients(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	broken := errors.New("query was cancelled")
	for _, c := range []struct {
		request context.Context
		err     error
		want    outcome
	}{{t.Context(), nil, answered}, {t.Context(), broken, failed}, {gone, broken, left}, {gone, errors.Join(errStarted, broken), left}} {
		h := &handler{tally: &tally{}}
		h.count(c.request, roleReadonlyClient, c.err)
		h.count(c.request, RoleReader, c.err) // no read-only client
		if h.tally[c.want].Load() != 1 {
			t.Errorf("%v: %v", c.err, h.tally.LogValue())
		}
	}
}
