package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/capture"
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

// vxlanOn is a tagged frame with VXLAN to a UDP port, from 10.0.0.1 to 10.0.0.2 around
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

// TestUDPTunnels: a tunnel on a port of one's own is walked once it is configured, and
// the ports that are configured replace the usual ones.
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

func TestUDPTunnelMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"decode:\n  udp_tunnels:\n    8472: vxlan\n    8472: geneve\n": "line 4: decode: udp_tunnels: 8472: port 8472 is already defined",
		"decode:\n  udp_tunnels:\n    1: vxlan\n    2: gre\n":          `line 4: decode: udp_tunnels: 2: tunnel "gre": expected one of`,
		"decode:\n  udp_tunnels: {99999: vxlan}\n":                     `port "99999": expected 1 to 65535`,
		"decode:\n  udp_tunnels: {0: vxlan}\n":                         `line 2: decode: udp_tunnels: 0: port "0": expected 1 to 65535`,
		"decode:\n  udp_tunnels: {1: [vxlan]}\n":                       "line 2: decode: udp_tunnels: 1: tunnel",
		"decode:\n  udp_tunnels: [4789]\n":                             "line 2: decode: udp_tunnels: expected a mapping",
		"decode: {udp_tunnels: {4793: vxlan}}\ncsig:\n  udp_reflections:\n  - {ports: [4793], format: compact, profile: ietf01}\n": "udp port 4793: is configured for vxlan and for reflections",
	} {
		config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text)
		if err := checkFiles(t, "--config", config); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), config) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
