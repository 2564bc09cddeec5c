package edge

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// places are the connections that a listener holds open, up to a maximum. Where clients prove who
// they are, a connection is proven by its first request with a valid credential, and keeps its
// place. Others give way: once all places are taken, the oldest unproven connection is closed for
// each new one. A quarter of the places is for connections that are not proven yet, so that a
// valid client has time to prove itself however many others do not; beyond the other three
// quarters a proven connection counts as unproven.
//
// An address, or an IPv6 /64, has at most half of the places, and a sixteenth for unproven
// connections: a flood from one address is refused before it displaces anybody. It is safe for
// concurrent use.
type places struct {
	most       int
	mostProven int // 0: nobody can prove anything
	ofAddress  int // connections; 0: no bounds of addresses
	unprovenOf int // connections of an address that are not proven

	mu        sync.Mutex
	open      int
	proven    int
	unproven  list.List // of *placedConn, the oldest first
	addresses map[netip.Prefix]*addressPlaces
}

type addressPlaces struct{ open, unproven int }

// fewPlaces is the least that an address has, so that its share of a small number is of use.
const fewPlaces = 16

func newPlaces(most int, g *gate) *places {
	p := &places{most: most, addresses: make(map[netip.Prefix]*addressPlaces)}
	if g == nil {
		return p
	}
	p.ofAddress, p.unprovenOf = max(most/2, fewPlaces), max(most/16, fewPlaces)
	if g.auth.TLS.CA != "" || g.auth.Clients != "" {
		p.mostProven = most - most/4
	}
	return p
}

// take gives a connection a place, and returns the connection that it displaces; the caller closes
// that. Without a place it returns nil and why.
func (p *places) take(c net.Conn) (placed, displaced *placedConn, why Reason) {
	from := remoteNetwork(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.addresses[from]
	if of == nil {
		of = &addressPlaces{}
	}
	// A Unix socket has no address.
	if from.IsValid() && p.ofAddress > 0 && (of.open >= p.ofAddress || of.unproven >= p.unprovenOf) {
		return nil, nil, AddressConns
	}
	if p.open >= p.most {
		oldest := p.unproven.Front()
		if oldest == nil {
			return nil, nil, TooManyConns
		}
		displaced, _ = oldest.Value.(*placedConn)
		p.leave(displaced)
	}
	placed = &placedConn{Conn: c, places: p, from: from}
	p.open++
	of.open++
	p.addresses[from] = of
	if p.mostProven > 0 {
		of.unproven++
		placed.waiting = p.unproven.PushBack(placed)
	}
	return placed, displaced, 0
}

// leave gives a place back, once. The caller holds mu.
func (p *places) leave(c *placedConn) {
	if c.left {
		return
	}
	c.left = true
	of := p.addresses[c.from]
	p.open--
	of.open--
	switch {
	case c.waiting != nil:
		p.unproven.Remove(c.waiting)
		of.unproven--
	case p.mostProven > 0:
		p.proven--
	}
	if of.open == 0 {
		delete(p.addresses, c.from)
	}
}

// placedConn has a place until it closes.
type placedConn struct {
	net.Conn
	places *places
	from   netip.Prefix
	proven atomic.Bool

	// Guarded by the mu of places.
	waiting *list.Element // among the unproven; nil for others
	left    bool
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	c.places.mu.Lock()
	c.places.leave(c)
	c.places.mu.Unlock()
	return c.Conn.Close()
}

// prove has the connection keep its place, if there is room among those that do.
func (c *placedConn) prove() {
	if c.proven.Load() {
		return
	}
	p := c.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.left || c.waiting == nil || p.proven >= p.mostProven {
		return
	}
	p.unproven.Remove(c.waiting)
	c.waiting = nil
	p.addresses[c.from].unproven--
	p.proven++
	c.proven.Store(true)
}

type placeKey struct{}

// connContext is a hook for http.Server, by which provenBy finds a request's connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, placeKey{}, c)
}

// provenBy notes that a request has proven who its client is.
func provenBy(r *http.Request) {
	if c, ok := r.Context().Value(placeKey{}).(*placedConn); ok {
		c.prove()
	}
}

// remoteNetwork is the IPv4 address or the IPv6 /64 that a connection comes from, the zero Prefix
// for a Unix socket.
func remoteNetwork(c net.Conn) netip.Prefix {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return networkOf(a.AddrPort().Addr())
}

// networkOf is an IPv4 address or an IPv6 /64, in which everybody has as many addresses as they
// like.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // fails for no address
	return p
}
