package decode_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

var update = flag.Bool("update", false, "write testdata/frames/*.want again")

// goldens reads testdata/frames/*.hex.
func goldens(t testing.TB) []livetest.HexFrame {
	t.Helper()
	return livetest.ReadHex(t, filepath.Join("testdata", "frames"))
}

func goldenFrame(t testing.TB, name string) []byte {
	t.Helper()
	for _, g := range goldens(t) {
		if g.Name == name {
			return g.Data
		}
	}
	t.Fatalf("no frame %s in testdata", name)
	return nil
}

func unhex(text string) ([]byte, error) {
	return hex.DecodeString(strings.ReplaceAll(text, " ", ""))
}

func domain(t testing.TB, s csig.Spec) *csig.Domain {
	t.Helper()
	d, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func decoder(t testing.TB, dom *csig.Domain) *decode.Decoder {
	t.Helper()
	return decoderOf(t, decode.Config{Domain: dom})
}

func decoderOf(t testing.TB, cfg decode.Config) *decode.Decoder {
	t.Helper()
	d, err := decode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGolden checks the result of each frame: the reason, the JSON of its observations and the
// counters that only the reflections' encodings change.
func TestGolden(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			got := describe(t, dom, g.Data)
			path := filepath.Join("testdata", "frames", g.Name+".want")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func describe(t *testing.T, dom *csig.Domain, frame []byte) string {
	t.Helper()
	d := decoder(t, dom)
	var r decode.Result
	d.Decode(frame, &r)
	var b bytes.Buffer
	fmt.Fprintf(&b, "reason: %s\n", r.Reason)
	c := d.Counters()
	for _, n := range []struct {
		name  string
		value uint64
	}{
		{"empty reflections", c.EmptyReflections},
		{"invalid reflections", c.InvalidReflections},
		{"excess reflections", c.ExcessReflections},
	} {
		if n.value > 0 {
			fmt.Fprintf(&b, "%s: %d\n", n.name, n.value)
		}
	}
	for i := range r.Obs[:r.N] {
		o := &r.Obs[i]
		o.TimeNS, o.Packet = 1_700_000_000_123_456_789, 1
		line := o.AppendJSON(nil, dom, &r.Encap)
		if !json.Valid(line) {
			t.Errorf("not JSON: %s", line)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}
