package decode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// brief returns the endpoints of an observation, "tag 10.0.0.1:1 > 10.0.0.2:2/17", and whether it
// is an orphan.
func brief(o *decode.Observation) string {
	var b strings.Builder
	b.WriteString(o.Kind.String())
	if o.Flags&decode.Orphan != 0 {
		b.WriteString(" orphan")
	}
	if o.Flags&decode.HasAddrs == 0 {
		return b.String()
	}
	src, dst := o.Addrs()
	fmt.Fprintf(&b, " %s > %s proto %d", src, dst, o.Proto)
	if o.Flags&decode.HasPorts != 0 {
		fmt.Fprintf(&b, " ports %d > %d", o.SrcPort, o.DstPort)
	}
	if o.Flags&decode.HasAck != 0 {
		fmt.Fprintf(&b, " ack %d", o.Ack)
	}
	return b.String()
}

func briefs(r *decode.Result) []string {
	all := make([]string, 0, r.N)
	for i := range r.Obs[:r.N] {
		all = append(all, brief(&r.Obs[i]))
	}
	return all
}

// TestTunnelEndpoints reads the same frames with each treatment of tunnels.
func TestTunnelEndpoints(t *testing.T) {
	t.Parallel()
	const (
		vxlan  = " 10.0.0.1 > 10.0.1.2 proto 17 ports 50000 > 4789"
		vxlan6 = " 2001:db8::1 > 2001:db8:0:1::2 proto 17 ports 50000 > 4789"
		gre    = " 10.0.0.1 > 10.0.1.2 proto 47"
		tzsp   = " 10.0.0.1 > 10.0.1.2 proto 17 ports 50000 > 37008"
		tcp    = " 10.1.0.1 > 10.1.0.2 proto 6 ports 40000 > 443"
		ack    = " ack 4096"
	)
	dom := domain(t, csig.DefaultSpec())
	cfgs := configs(dom)
	for _, tc := range []struct {
		frame, config string
		want          []string
	}{
		{"vxlan", "outer", []string{"tag" + vxlan, "reflection" + vxlan + ack}},
		{"vxlan", "inner", []string{"tag" + tcp + ack, "reflection" + tcp + ack}},
		{"vxlan_tag", "outer", []string{"tag" + vxlan, "tag orphan" + vxlan, "reflection" + vxlan + ack}},
		{"vxlan_tag", "inner", []string{"tag" + tcp + ack, "tag orphan" + tcp + ack, "reflection" + tcp + ack}},
		{"vxlan_tag", "outer inner tags", []string{"tag" + vxlan, "tag orphan" + vxlan, "reflection" + vxlan + ack}},
		{"vxlan_tag_only", "outer", []string{"tag orphan" + vxlan, "reflection" + vxlan + ack}},
		{"vxlan_tag_only", "outer inner tags", []string{"tag" + vxlan, "reflection" + vxlan + ack}},
		{"vxlan_tag_only", "inner inner tags", []string{"tag" + tcp + ack, "reflection" + tcp + ack}},
		{"vxlan_vlan_tags", "outer inner tags", []string{"tag" + vxlan6, "tag orphan" + vxlan6, "tag orphan" + vxlan6, "reflection" + vxlan6 + ack}},
		{"vxlan_vlan_tags", "inner", []string{"tag" + tcp + ack, "tag orphan" + tcp + ack, "tag orphan" + tcp + ack, "reflection" + tcp + ack}},
		{"vxlan_arp", "inner", []string{"tag" + vxlan}},
		{"vxlan_macsec", "inner", []string{"tag" + vxlan}},
		{"vxlan_in_gre", "outer", []string{"tag" + gre, "reflection" + gre + ack}},
		{"vxlan_in_gre", "inner", []string{"tag" + tcp + ack, "reflection" + tcp + ack}},
		{"gre_tag", "outer inner tags", []string{"tag" + gre, "tag orphan" + gre, "reflection" + gre + ack}},
		{"mpls_pw_tag", "outer", []string{"tag" + tcp + ack, "tag orphan" + tcp + ack, "reflection" + tcp + ack}},
		{"mpls_pw_tag_only", "outer inner tags", []string{"tag" + tcp + ack, "reflection" + tcp + ack}},
		{"gre_mirror", "outer", []string{"tag" + gre, "reflection orphan" + gre + ack}},
		{"gre_mirror", "inner inner tags", []string{"tag" + gre, "reflection orphan" + gre + ack}},
		{"erspan_2", "outer", []string{"tag orphan" + gre, "reflection orphan" + gre + ack}},
		{"erspan_2", "inner inner tags", []string{"tag orphan" + gre, "reflection orphan" + gre + ack}},
		{"tzsp", "outer inner tags", []string{"tag orphan" + tzsp, "reflection orphan" + tzsp + ack}},
		{"tzsp", "inner", []string{"tag orphan" + tzsp, "reflection orphan" + tzsp + ack}},
		{"esp", "inner", []string{"tag 10.0.0.1 > 10.0.1.2 proto 50"}},
		{"psp", "inner", []string{"tag 10.0.0.1 > 10.0.1.2 proto 17 ports 50000 > 1000"}},
	} {
		d := decoderOf(t, cfgs[tc.config])
		var r decode.Result
		d.Decode(goldenFrame(t, tc.frame), &r)
		if diff := cmp.Diff(tc.want, briefs(&r)); diff != "" {
			t.Errorf("%s, %s: %s (-want +got):\n%s", tc.frame, tc.config, r.Reason, diff)
		}
	}
}

// If the innermost header is requested and the capture may end before it, the outer one is not
// used.
func TestInnerEndpointsOfCuts(t *testing.T) {
	t.Parallel()
	d := decoderOf(t, decode.Config{Domain: domain(t, csig.DefaultSpec()), Endpoints: decode.Inner})
	frame := goldenFrame(t, "vxlan")
	for n := 18; n < len(frame); n++ {
		var r decode.Result
		d.Decode(frame[:n], &r)
		// Ethernet and tag, IPv4, UDP, VXLAN, inner Ethernet, 20 bytes of inner IPv4.
		const inner = 18 + 20 + 8 + 8 + 14 + 20
		if got := r.Obs[0].Flags&decode.HasAddrs != 0; got != (n >= inner) {
			t.Errorf("cut at %d: %s has addresses: %v", n, brief(&r.Obs[0]), got)
		}
	}
}

func TestEncapNamesAndIDs(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	for frame, want := range map[string][]decode.Layer{
		"mpls_stack":      {{Encap: decode.MPLS, ID: 100}, {Encap: decode.MPLS, ID: 200}, {Encap: decode.MPLS, ID: 300}},
		"gre_all":         {{Encap: decode.GRE, ID: 42}},
		"nvgre":           {{Encap: decode.NVGRE, ID: 5000}},
		"vxlan_vlan_tags": {{Encap: decode.VXLAN, ID: 5000}, {Encap: decode.VLAN, ID: 7}},
		"vxlan_gpe_ipv4":  {{Encap: decode.VXLANGPE, ID: 5000}},
		"geneve_ipv6":     {{Encap: decode.Geneve, ID: 5000}},
		"gtpu_ipv4":       {{Encap: decode.GTPU, ID: 42}},
		"esp":             {{Encap: decode.ESP, ID: 0xbeef}},
		"psp":             {{Encap: decode.PSP, ID: 0xbeef}},
		"erspan_1":        {{Encap: decode.GRE}, {Encap: decode.ERSPAN}},
		"erspan_3":        {{Encap: decode.GRE}, {Encap: decode.ERSPAN, ID: 77}},
		"tzsp":            {{Encap: decode.TZSP}},
	} {
		var r decode.Result
		d.Decode(goldenFrame(t, frame), &r)
		if diff := cmp.Diff(want, r.Encap.Layers()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", frame, diff)
		}
	}
	if c := d.Counters(); c.Encrypted != 2 {
		t.Errorf("%d encrypted packets, want those of ESP and PSP", c.Encrypted)
	}
	for e := decode.VLAN; e <= decode.TZSP; e++ {
		text := string(decode.Layer{Encap: e, ID: 3}.Append(nil))
		if want := strings.TrimSuffix(text, ":3"); e.String() != want || (e == decode.VLAN) != (want != text) {
			t.Errorf("encapsulation %d is %q, its layer %q", e, e, text)
		}
	}
	if unknown := (decode.Layer{Encap: 99}); unknown.Encap.String() != "encap_99" || string(unknown.Append(nil)) != "encap_99" {
		t.Errorf("an unknown encapsulation is %q, its layer %q", unknown.Encap, unknown.Append(nil))
	}
}

func TestUDPTunnelPorts(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	frame := goldenFrame(t, "vxlan")
	for name, tc := range map[string]struct {
		ports map[uint16]decode.Encap
		want  int // layers
	}{
		"default":      {nil, 1},
		"none":         {map[uint16]decode.Encap{}, 0},
		"another port": {map[uint16]decode.Encap{8472: decode.VXLAN}, 0},
		"both":         {map[uint16]decode.Encap{8472: decode.VXLAN, 4789: decode.VXLAN}, 1},
	} {
		var r decode.Result
		decoderOf(t, decode.Config{Domain: dom, UDPTunnels: tc.ports}).Decode(frame, &r)
		if n := len(r.Encap.Layers()); n != tc.want || r.Reason != decode.OK {
			t.Errorf("%s: %s, %d layers, want %d", name, r.Reason, n, tc.want)
		}
	}
	for name, cfg := range map[string]decode.Config{
		"expected vxlan,": {Domain: dom, UDPTunnels: map[uint16]decode.Encap{7: decode.GRE}},
		"udp port 4789: is configured for vxlan and for reflections": {Domain: domain(t, csig.Spec{
			UDPReflections: []csig.UDPReflectionSpec{{Ports: []uint16{4789}, Format: "compact", Profile: "ietf01"}},
		})},
	} {
		if _, err := decode.New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New() = %v, want %q", err, name)
		}
	}
}

func TestParseEndpoints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]decode.Endpoints{"": decode.Outer, "outer": decode.Outer, "inner": decode.Inner} {
		if got, err := decode.ParseEndpoints(text); err != nil || got != want {
			t.Errorf("ParseEndpoints(%q) = %v, %v", text, got, err)
		}
	}
	if _, err := decode.ParseEndpoints("middle"); err == nil {
		t.Error("there are endpoints in the middle")
	}
}
