package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
)

// A capture with only unreadable link types is refused with their names and numbers; otherwise
// their packets are counted.
func TestLinkTypes(t *testing.T) {
	rec := shared(t, classic)
	write := func(links ...capture.LinkType) string {
		var out bytes.Buffer
		w := capture.NewWriter(&out)
		var interfaces []capture.Interface
		for i, link := range links {
			interfaces = append(interfaces, capture.Interface{Link: link})
			if err := errors.Join(w.Declare(interfaces), w.Write(&capture.Frame{Data: tagged(1), TimeNS: 1e9, WireLen: 38, Interface: uint32(i)}, "")); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "links.pcapng")
		if err := errors.Join(w.Flush(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		path string
		want []string // in the error; nil for no error
	}{
		"none is read":  {write(105, 147, 105), []string{"expected Ethernet (link type 1)", `2 of IEEE 802.11 (link type 105) in "`, `1 of link type 147 in "`, "links.pcapng"}},
		"some are read": {write(105, capture.LinkEthernet), nil},
	} {
		cfg := rec.config(&blocks{})
		cfg.Files = []string{test.path}
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l, err := replay.NewLister(listConfig(t, new(bytes.Buffer)))
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{r.Run(t.Context()), l.Run(t.Context(), cfg.Files)} {
			if errors.Is(err, window.ErrLinkType) != (test.want != nil) {
				t.Errorf("%s: error %v", name, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not say %q", name, err, want)
				}
			}
		}
		links, err := json.Marshal(r.Result().SkippedLink)
		if err != nil || !strings.Contains(string(links), `"IEEE 802.11":`) || l.Counts().SkippedLink.Total() != r.Result().SkippedLink.Total() {
			t.Errorf("%s: counted %s, %v", name, links, err)
		}
	}
}

// A file with such a link type is not left out because a chunk of it has no other.
func TestLinkTypeOfChunk(t *testing.T) {
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: capture.LinkEthernet}, capture.Interface{Link: 105})
	var err error
	for i := range uint32(600) {
		err = errors.Join(err, w.Write(&capture.Frame{Data: tagged(1), TimeNS: 1e9, WireLen: 38, Interface: i / 300}, ""))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, pace := range []float64{0, 1e6} {
		cfg := defaultConfig(t, written(t, out.Bytes()))
		cfg.ChunkBytes, cfg.Pace = 8000, pace
		if r := replayed(t, cfg); len(r.Cuts) != 0 || r.SkippedLink.Total() != 300 || r.Counts.Stored != 300 {
			t.Errorf("pace %v: %v, %+v", pace, r.Cuts, r.Counts)
		}
	}
}

// A file of such a link type among others is left out, and named.
func TestLinkTypeOfOneFile(t *testing.T) {
	dir := t.TempDir()
	good, tun := capturedAt(t, filepath.Join(dir, "good.pcapng"), 1, 2), filepath.Join(dir, "tun.pcapng")
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: 101})
	if err := errors.Join(w.Write(&capture.Frame{Data: tagged(1)[18:], TimeNS: 1e9}, ""), w.Flush(), os.WriteFile(tun, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("no packet can be read: 1 of raw IP (link type 101) in %q: expected Ethernet (link type 1), Linux SLL (113) or Linux SLL2 (276)", tun)
	for _, pace := range []float64{0, 1e6} {
		cfg := defaultConfig(t, good)
		cfg.Files, cfg.Pace = []string{good, tun}, pace
		if r := replayed(t, cfg); len(r.Cuts) != 1 || r.Cuts[0].Error() != want || r.Counts.Stored != 2 {
			t.Errorf("pace %v: %v, %+v", pace, r.Cuts, r.Counts)
		}
	}
	l, err := replay.NewLister(listConfig(t, new(bytes.Buffer)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), []string{good, tun}); err == nil || err.Error() != want || l.Counts().Observations != 2 {
		t.Errorf("list: %v, %d observations", err, l.Counts().Observations)
	}
}
