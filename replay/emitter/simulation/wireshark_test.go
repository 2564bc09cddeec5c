package simulation

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestWiresharkTakesFrames passes whole frames of every encapsulation to Wireshark, without the
// tags, which it does not know: none is malformed, and all checksums are right.
func TestWiresharkTakesFrames(t *testing.T) {
	long(t)
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("tshark is not installed")
		}
		t.Skip("SKIPPED: tshark is not installed")
	}
	s := tiny()
	s.Duration, s.TagEvery, s.AckEvery = 200*time.Millisecond, -1, 2
	s.SnapLen, s.SingleFile, s.CaptureUntagged = 9000, true, true
	s.Workloads = nil
	for i, row := range everyEncap() {
		for _, underlay := range []int{4, 6} {
			w := scenario.Workload{Kind: scenario.Background, Pairs: 2, Rate: scenario.Mbps, Encap: row.encap, IP: 4 + 2*(i%2), Underlay: underlay}
			if row.encap == "psp" {
				w.IP = 4 // over IPv6 it has no checksum, which Wireshark reports
			}
			s.Workloads = append(s.Workloads, w)
		}
	}
	r, _ := run(t, s)
	args := []string{"-r", r.Captures[0], "-T", "fields", "-e", "frame.number", "-e", "frame.protocols"}
	for _, protocol := range []string{"ip", "udp", "tcp"} {
		args = append(args, "-o", protocol+".check_checksum:TRUE")
	}
	out, err := exec.Command(tshark, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"ieee8021ad:ethertype:vlan", "macsec", "mpls:ip", "pwethcw:eth", "ip:ipv6:tcp", "ipv6:ip", "gre:eth", "vxlan:eth", "geneve:eth", "gtp:ip", "ipv6.routing", "esp",
	} {
		if !strings.Contains(string(out), row) {
			t.Errorf("no frame is %s to Wireshark", row)
		}
	}
	bad := "_ws.malformed || _ws.expert.severity >= 8388608"
	for _, checksum := range []string{"ip", "udp", "tcp", "gre"} {
		bad += " || " + checksum + ".checksum.status == 0"
	}
	out, err = exec.Command(tshark, append(args, "-Y", bad)...).Output()
	if err != nil || len(out) > 0 {
		t.Errorf("bad frames, %v:\n%.1000s", err, out)
	}
}
