package alto

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// addresses are an EndpointAddrGroup (RFC 7285, section 10.4.5): prefixes by address type.
type addresses map[string][]string

const (
	typeIPv4 = "ipv4"
	typeIPv6 = "ipv6"
)

// versionTag identifies a version of a resource (RFC 7285, section 10.3).
type versionTag struct {
	Resource string `json:"resource-id"`
	Tag      string `json:"tag"`
}

// network is the network map at one time. It never changes once it is read.
type network struct {
	tag  versionTag
	pids map[string]addresses
	name map[aggregate.GroupID]string
	of   bart.Table[string] // PIDs by prefix
}

// fresh is how long a network map is kept before groups are read again.
const fresh = 5 * time.Second

// again is the same after a failed or incomplete reading, which keeps the previous map.
const again = 500 * time.Millisecond

// network returns the network map, re-read if it is too old.
func (s *server) network(ctx context.Context) (*network, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if now := s.Now(); s.known == nil || now.Sub(s.readAt) >= fresh {
		n, err := s.readNetwork(ctx)
		switch {
		case n != nil:
			s.known = n
		case s.known == nil:
			return nil, err
		}
		if s.readAt = now; err != nil {
			s.readAt = now.Add(again - fresh)
		}
	}
	return s.known, nil
}

// readNetwork reads the groups; an error with a network means that some are missing. Each prefix
// is in one PID, and every address in one: all other addresses are in the PID of unknown
// addresses (RFC 7285, section 11.2.2).
func (s *server) readNetwork(ctx context.Context) (*network, error) {
	groups, lacking := s.Groups(ctx)
	if lacking != nil && groups == nil {
		return nil, fmt.Errorf("read groups: %w", lacking)
	}
	var prefixes map[aggregate.GroupID][]netip.Prefix
	if s.Prefixes != nil {
		prefixes = s.Prefixes()
	}
	n := &network{pids: make(map[string]addresses), name: make(map[aggregate.GroupID]string)}
	var unlisted []fabric.Group
	for _, g := range groups {
		switch {
		case g.ID == aggregate.OverflowGroup || g.ID == aggregate.UnknownGroup:
		case len(prefixes[g.ID]) > 0:
			n.add(g.ID, g.Name, prefixes[g.ID])
		default:
			unlisted = append(unlisted, g)
		}
	}
	named := make([][]netip.Prefix, len(unlisted))
	for i := range unlisted {
		named[i] = n.namedAfter(unlisted[i].Name)
	}
	for i := range unlisted {
		n.add(unlisted[i].ID, unlisted[i].Name, named[i])
	}
	world := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	n.add(aggregate.UnknownGroup, "unknown", world)
	text, err := json.Marshal(n.pids)
	if err != nil {
		return nil, fmt.Errorf("encode network map: %w", err)
	}
	sum := sha256.Sum256(text)
	n.tag = versionTag{networkMapID, hex.EncodeToString(sum[:20])}
	return n, lacking
}

// namedAfter returns the prefix that a group without listed prefixes has as its name; nil if the prefix of another group
// contains it. Rows from before there was a fabric file, or of an exporter without one, have such groups.
func (n *network) namedAfter(name string) []netip.Prefix {
	p, err := netip.ParsePrefix(name)
	if err != nil {
		return nil
	}
	if _, inside := n.of.LookupPrefix(p.Masked()); inside {
		return nil
	}
	return []netip.Prefix{p}
}

// add makes a PID of a group. A prefix that already belongs to another group stays there.
func (n *network) add(id aggregate.GroupID, name string, list []netip.Prefix) {
	pid := pidOf(id, name)
	n.name[id] = pid
	if n.pids[pid] == nil {
		n.pids[pid] = addresses{}
	}
	for _, p := range list {
		p = p.Masked()
		if _, taken := n.of.Get(p); taken {
			continue
		}
		n.of.Insert(p, pid)
		kind := typeIPv6
		if p.Addr().Is4() {
			kind = typeIPv4
		}
		n.pids[pid][kind] = append(n.pids[pid][kind], p.String())
	}
}

// maxPID bounds a PID's name, in bytes (RFC 7285, section 10.1).
const maxPID = 64

// pidOf encodes the group's name as a PID, which allows fewer characters: others become @ and two
// hex digits, such as 10@2e0@2e1@2e0@2f24 for 10.0.1.0/24. A name that is too long becomes the
// group's number after two @.
func pidOf(id aggregate.GroupID, name string) string {
	pid := make([]byte, 0, maxPID)
	for _, b := range []byte(name) {
		switch {
		case b >= '0' && b <= '9', b >= 'A' && b <= 'Z', b >= 'a' && b <= 'z', b == '-', b == ':', b == '_':
			pid = append(pid, b)
		default:
			pid = fmt.Appendf(pid, "@%02x", b)
		}
		if len(pid) > maxPID {
			break
		}
	}
	if len(pid) > maxPID || len(pid) == 0 {
		return fmt.Sprintf("@@%016x", uint64(id))
	}
	return string(pid)
}

// pid returns the PID of a group, even of one without a name.
func (n *network) pid(id aggregate.GroupID) (string, bool) {
	if id == aggregate.OverflowGroup {
		return "", false // it stands for several
	}
	pid, ok := n.name[id]
	return pid, ok
}

func (n *network) answer(pids map[string]addresses) any {
	return map[string]any{"meta": map[string]any{"vtag": n.tag}, "network-map": pids}
}

// networkMap is RFC 7285, section 11.2.1.
func (s *server) networkMap(r *http.Request) (any, error) {
	n, err := s.network(r.Context())
	if err != nil {
		return nil, err
	}
	return n.answer(n.pids), nil
}

// filteredNetworkMap is RFC 7285, section 11.3.1.
func (s *server) filteredNetworkMap(r *http.Request) (any, error) {
	var in struct {
		PIDs  *[]string `json:"pids"`
		Types []string  `json:"address-types"`
	}
	if err := read(r, typeNetworkMapFilter, &in); err != nil {
		return nil, err
	}
	if in.PIDs == nil {
		return nil, missing("pids")
	}
	n, err := s.network(r.Context())
	if err != nil {
		return nil, err
	}
	chosen, wanted := make(map[string]addresses), newSet(*in.PIDs)
	for pid, all := range n.pids {
		if !wanted.takes(pid) {
			continue
		}
		some := addresses{}
		for kind, list := range all {
			if len(in.Types) == 0 || slices.Contains(in.Types, kind) {
				some[kind] = list
			}
		}
		chosen[pid] = some
	}
	return n.answer(chosen), nil
}
