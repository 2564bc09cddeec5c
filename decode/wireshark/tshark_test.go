// Package wireshark_test compares the dissector csig.lua with package decode on the same frames. It
// knows the names of the dissector's fields and how to run tshark. It must never decode a tag
// itself.
package wireshark_test

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// capture is a truncated frame.
type capture struct {
	name  string
	bytes []byte
	whole int // length of the frame on the wire
}

// seen is one tag or reflection, with the fields that both sides give.
type seen struct {
	Kind            string
	Format, Profile string
	Signal          string
	T, S, LM, R     uint32
	D               bool
	Orphan          bool
	Noted           bool // an expert note says that reserved bits are set
}

// dissection is csig.lua's result for one frame.
type dissection struct {
	seen           []seen
	next           []next
	empty, invalid int // reflections without data fields, and of impossible length
	tooDeep        bool
}

// next is the EtherType after a tag and its offset in the frame.
type next struct {
	offset    int
	etherType uint16
}

// pdmlField is a field of tshark's XML output, and the fields inside it.
type pdmlField struct {
	Name   string      `xml:"name,attr"`
	Show   string      `xml:"show,attr"`
	Pos    int         `xml:"pos,attr"`
	Fields []pdmlField `xml:"field"`
}

type pdml struct {
	Packets []struct {
		Protos []pdmlField `xml:"proto"`
	} `xml:"packet"`
}

// dissect makes tshark dissect the frames, with further arguments. The result is in the order of
// the frames.
func dissect(t *testing.T, frames []capture, args ...string) []dissection {
	t.Helper()
	var doc pdml
	out, _ := tshark(t, frames, append([]string{"-T", "pdml", "-J", "csig csig.reflection _ws.lua"}, args...)...)
	if err := xml.Unmarshal(out, &doc); err != nil {
		t.Fatalf("parse pdml: %v", err)
	}
	if len(doc.Packets) != len(frames) {
		t.Fatalf("tshark: %d packets, want %d", len(doc.Packets), len(frames))
	}
	all := make([]dissection, len(frames))
	for i, p := range doc.Packets {
		for j := range p.Protos {
			all[i].add(t, &p.Protos[j])
		}
	}
	return all
}

// tshark runs tshark with csig.lua over the frames, without the user's plugins and preferences.
func tshark(t *testing.T, frames []capture, args ...string) (stdout, stderr []byte) {
	t.Helper()
	path, err := exec.LookPath("tshark")
	if err != nil {
		const hint = "tshark is missing: nothing was tested: install it (Debian: apt-get install tshark)"
		if os.Getenv("CI") != "" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "frames.pcap")
	if err := os.WriteFile(file, pcap(frames), 0o600); err != nil {
		t.Fatal(err)
	}
	// Fragments stay separate: frames of different tests are not parts of one packet.
	cmd := exec.CommandContext(t.Context(), path, append([]string{
		"-n", "-r", file, "-X", "lua_script:csig.lua",
		"-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE",
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "WIRESHARK_CONFIG_DIR="+dir)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		t.Fatalf("run %s: %v\n%s", cmd, err, diag.String())
	}
	if bytes.Contains(diag.Bytes(), []byte("Lua: Error")) {
		t.Fatalf("run %s:\n%s", cmd, diag.String())
	}
	return out.Bytes(), diag.Bytes()
}

// pcap returns a capture file of Ethernet frames.
func pcap(frames []capture) []byte {
	const (
		magic    = 0xa1b2c3d4
		snapLen  = 262144
		ethernet = 1
	)
	le := binary.LittleEndian
	b := le.AppendUint32(nil, magic)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 4)
	for _, v := range []uint32{0, 0, snapLen, ethernet} {
		b = le.AppendUint32(b, v)
	}
	for i, f := range frames {
		for _, v := range []uint32{uint32(i), 0, uint32(len(f.bytes)), uint32(f.whole)} {
			b = le.AppendUint32(b, v)
		}
		b = append(b, f.bytes...)
	}
	return b
}

// add takes the dissector's output in one of a packet's protocols.
func (d *dissection) add(t *testing.T, proto *pdmlField) {
	t.Helper()
	if f := proto.find("_ws.lua.error"); f != nil {
		t.Errorf("dissector failed: %s", f.Show)
	}
	kind := map[string]string{"csig": "tag", "csig.reflection": "reflection"}[proto.Name]
	switch {
	case kind == "":
		return
	case proto.find("csig.reflection.empty") != nil:
		d.empty++
		return
	case proto.find("csig.reflection.invalid") != nil:
		d.invalid++
		return
	case proto.find("csig.cut") != nil:
		return
	}
	prefix := proto.Name + "."
	d.seen = append(d.seen, seen{
		Kind:    kind,
		Format:  proto.text(t, prefix+"format"),
		Profile: proto.text(t, prefix+"profile"),
		Signal:  proto.text(t, prefix+"signal"),
		T:       proto.number(t, prefix+"type"),
		S:       proto.number(t, prefix+"s"),
		LM:      proto.number(t, prefix+"lm"),
		R:       proto.number(t, prefix+"r"),
		D:       proto.find(prefix+"d") != nil && proto.number(t, prefix+"d") != 0,
		Orphan:  proto.find(prefix+"orphan") != nil && proto.number(t, prefix+"orphan") != 0,
		Noted:   proto.find(prefix+"reserved") != nil,
	})
	if f := proto.find("csig.next"); f != nil {
		d.next = append(d.next, next{f.Pos, uint16(proto.number(t, "csig.next"))})
	}
	d.tooDeep = d.tooDeep || proto.find("csig.too_deep") != nil
}

// find returns the first field of that name at any depth, or nil.
func (f *pdmlField) find(name string) *pdmlField {
	for i := range f.Fields {
		c := &f.Fields[i]
		if c.Name == name {
			return c
		}
		if c = c.find(name); c != nil {
			return c
		}
	}
	return nil
}

func (f *pdmlField) text(t *testing.T, name string) string {
	t.Helper()
	c := f.find(name)
	if c == nil {
		t.Errorf("no field %s in %s", name, f.Name)
		return ""
	}
	return c.Show
}

func (f *pdmlField) number(t *testing.T, name string) uint32 {
	t.Helper()
	show := f.text(t, name)
	// Newer versions of tshark show booleans by name.
	switch strings.ToLower(show) {
	case "true":
		return 1
	case "false":
		return 0
	}
	v, err := strconv.ParseUint(show, 0, 32)
	if err != nil {
		t.Errorf("field %s: %v", name, err)
	}
	return uint32(v)
}
