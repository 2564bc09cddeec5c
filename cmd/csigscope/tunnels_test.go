package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
)

// writeFrames writes frames of one Ethernet interface as a capture, a second apart.
func writeFrames(t *testing.T, frames ...[]byte) string {
	t.Helper()
	return writeLinkFrames(t, capture.LinkEthernet, frames...)
}

func writeLinkFrames(t *testing.T, link capture.LinkType, frames ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: link})
	for i, data := range frames {
		if err := w.Write(&capture.Frame{Data: data, TimeNS: int64(i+1) * 1e9, WireLen: uint32(len(data))}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(t.TempDir(), "frames.pcapng"), out.String())
}

// vxlanOn returns a tagged frame with VXLAN to a UDP port, from 10.0.0.1 to 10.0.0.2, around
// one from 10.9.0.1 to 10.9.0.2.
func vxlanOn(port uint16) []byte {
	ip := func(proto, length, net byte) []byte {
		return []byte{0x45, 0, 0, length, 0, 0, 0, 0, 64, proto, 0, 0, 10, net, 0, 1, 10, net, 0, 2}
	}
	return bytes.Join([][]byte{
		{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x99, 0x00, 0x2b, 0x85, 0x08, 0x00},
		ip(17, 70, 0),
		{0xc0, 0, byte(port >> 8), byte(port), 0, 50, 0, 0},
		{8, 0, 0, 0, 0, 0, 7, 0}, // UDP, VXLAN
		{2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 0x08, 0x00},
		ip(253, 20, 9),
	}, nil)
}

// TestUDPTunnels: a tunnel on a custom port is decoded once it is configured, and the
// configured ports replace the default ones.
func TestUDPTunnels(t *testing.T) {
	t.Parallel()
	type object struct {
		Src   string   `json:"src"`
		Encap []string `json:"encap"`
	}
	dir := t.TempDir()
	plain := writeFile(t, filepath.Join(dir, "plain.yaml"), "decode: {endpoints: inner}\n")
	own := writeFile(t, filepath.Join(dir, "own.yaml"), "decode:\n  endpoints: inner\n  udp_tunnels:\n    8472: vxlan\n")
	for name, test := range map[string]struct {
		config string
		port   uint16
		inside bool
	}{
		"usual port": {plain, 4789, true}, "own port": {plain, 8472, false},
		"own port, configured": {own, 8472, true}, "usual port, configured away": {own, 4789, false},
	} {
		o := decodeJSON[object](t, mustRun(t, os.Environ(), "decode", "--config", test.config, writeFrames(t, vxlanOn(test.port))))
		src, encap := "10.0.0.1", ""
		if test.inside {
			src, encap = "10.9.0.1", "vxlan"
		}
		if o.Src != src || strings.Join(o.Encap, ",") != encap {
			t.Errorf("%s: from %s in %v, want %s in %q", name, o.Src, o.Encap, src, encap)
		}
	}
	dump := mustRun(t, os.Environ(), "config", "dump", "--config", own)
	if again := mustRun(t, os.Environ(), "config", "dump", "--config", writeFile(t, filepath.Join(dir, "dump.yaml"), dump)); again != dump || !strings.Contains(dump, "udp_tunnels: {8472: vxlan}") {
		t.Errorf("config dump of\n%s\ngives\n%s", dump, again)
	}
	epochs := map[string]bool{}
	for _, config := range []string{plain, own} {
		epochs[mustRun(t, os.Environ(), "config", "check", "--config", config)] = true
	}
	if len(epochs) != 2 {
		t.Error("tunnels are no part of the configuration epoch")
	}
}

// mirrorHeads are, by kind, a protocol and the headers between IP and a mirrored frame.
var mirrorHeads = map[string][]byte{
	"erspan": {47, 0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 7, 0, 0, 0, 0},
	"gretap": {47, 0x20, 0, 0x65, 0x58, 0, 0, 0, 7},
	"vxlan":  {17, 0xc0, 0, 4789 >> 8, 4789 & 0xff, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0},
	"tzsp":   {17, 0xc0, 0, 37008 >> 8, 37008 & 0xff, 0, 0, 0, 0, 1, 0, 0, 1, 1},
}

// mirrored returns a frame in a mirror session from a switch at 192.0.2.1 to 192.0.2.2.
func mirrored(kind string, frame []byte) []byte {
	protocol, head := mirrorHeads[kind][0], mirrorHeads[kind][1:]
	n := 20 + len(head) + len(frame)
	ip := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
	return slices.Concat([]byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x08, 0x00}, ip, head, frame)
}

// TestForgedMirrors: frames in a mirror session count if a flag, the configuration or the
// fabric file declares such sessions in the capture. Otherwise, where anybody can have sent
// them, their tags are printed, counted and found as orphans, and enter no heatmap.
func TestForgedMirrors(t *testing.T) {
	t.Parallel()
	type object struct {
		Src    string `json:"src"`
		Orphan bool   `json:"orphan"`
	}
	dir := t.TempDir()
	frame := livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)
	for kind := range mirrorHeads {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			file := writeFrames(t, mirrored(kind, frame), mirrored(kind, mirrored(kind, frame)))
			other := "erspan"
			if kind == other {
				other = "gretap,vxlan,tzsp"
			}
			for _, test := range []struct {
				name string
				args []string
				held bool
			}{
				{"nothing said", nil, false},
				{"others", []string{"--mirrors", other}, false},
				{"flag", []string{"--mirrors", kind}, true},
				{"configuration", []string{"--config", writeFile(t, filepath.Join(dir, kind+".yaml"), "taps:\n- {name: frames, place: receiver, mirrors: ["+kind+"]}\n")}, true},
				{"fabric file", []string{"--fabric", writeFile(t, filepath.Join(dir, kind+"-fabric.yaml"), "version: 1\ntaps:\n- {name: frames, place: receiver, mirrors: ["+kind+"]}\n")}, true},
			} {
				with := func(args ...string) string {
					t.Helper()
					return mustRun(t, os.Environ(), append(append(args, test.args...), file)...)
				}
				want, n := []object{{"192.0.2.1", true}, {"192.0.2.1", true}}, uint64(0)
				if test.held {
					want[0], n = object{"10.0.0.1", false}, 1 // a mirror inside a mirror is never accepted
				}
				var got []object
				for line := range strings.Lines(with("decode")) {
					got = append(got, decodeJSON[object](t, line))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: decode prints %v, want %v", test.name, got, want)
				}
				s := decodeJSON[summaryOutput](t, with("replay", "--store", "none", "-o", "json"))
				if o := s.Observations; o.In != 2 || o.Stored != n || o.Rejected["orphan"] != 2-n {
					t.Errorf("%s: %d of %d forged tags are stored, rejected %v; want %d stored and the others orphans", test.name, o.Stored, o.In, o.Rejected, n)
				}
				r := decodeJSON[struct {
					Findings []struct {
						Kind  string `json:"kind"`
						Count uint64 `json:"count"`
					} `json:"findings"`
				}](t, with("report", "-o", "json", "--out", "-"))
				orphans := uint64(0)
				for _, f := range r.Findings {
					if f.Kind == "orphan-tag" {
						orphans += f.Count
					}
				}
				if orphans != 2-n {
					t.Errorf("%s: report finds %d orphans, want %d: %+v", test.name, orphans, 2-n, r.Findings)
				}
			}
		})
	}
}

// TestMirrorMistakes: the error names the place and the kinds.
func TestMirrorMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const kinds = "expected erspan, gretap, vxlan or tzsp"
	tap := func(keys string) string { return "\n- {name: a, place: receiver, mirrors: " + keys + "}\n" }
	file := writeFrames(t, vxlanOn(1))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"flag":          {[]string{"decode", "--mirrors", "erspan,span", file}, `--mirrors: mirror kind "span": ` + kinds},
		"configuration": {[]string{"config", "check", "--config", writeFile(t, filepath.Join(dir, "taps.yaml"), "taps:"+tap("[span]"))}, `line 2: taps: mirrors: mirror kind "span": ` + kinds},
		"no list":       {[]string{"config", "check", "--config", writeFile(t, filepath.Join(dir, "list.yaml"), "taps:"+tap("erspan"))}, "line 2: taps: expected a list of mirror kinds such as [erspan, vxlan]"},
		"collect":       {[]string{"config", "check", "--config", writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  taps:\n  - {interface: lo, mirrors: [span]}\n")}, `line 3: collect: taps: mirrors: mirror kind "span": ` + kinds},
		"export":        {[]string{"config", "check", "--config", writeFile(t, filepath.Join(dir, "export.yaml"), "export:\n  taps:\n  - {interface: lo, mirrors: [span]}\n")}, `line 3: export: taps: mirrors: mirror kind "span": ` + kinds},
		"fabric file":   {[]string{"config", "check", "--fabric", writeFile(t, filepath.Join(dir, "fabric.yaml"), "version: 1\ntaps:"+tap("[span]"))}, `fabric.yaml:3: mirror kind "span": ` + kinds},
	} {
		if r := runBinary(t, os.Environ(), test.args...); r.code != exitUsage || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: exit code %d, %q, want %q", name, r.code, r.stderr, test.want)
		}
	}
	own := writeFile(t, filepath.Join(dir, "own.yaml"), "taps:"+tap("[tzsp, erspan]")+"collect: {taps: [{interface: lo, mirrors: [vxlan]}]}\n")
	dump := mustRun(t, os.Environ(), "config", "dump", "--config", own)
	if again := mustRun(t, os.Environ(), "config", "dump", "--config", writeFile(t, filepath.Join(dir, "dump.yaml"), dump)); again != dump || !strings.Contains(dump, "mirrors: [erspan, tzsp]") || !strings.Contains(dump, "mirrors: [vxlan]") {
		t.Errorf("config dump gives\n%s\nand then\n%s", dump, again)
	}
}
