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

// connSlots limits the open connections of a listener. If clients authenticate, the first request
// with a valid credential proves a connection, and it keeps its slot. Unauthenticated connections
// give way: once all slots are taken, each new connection closes the oldest unauthenticated one. A
// quarter of the slots is reserved for unauthenticated connections, so that a valid client always has
// time to authenticate. Authenticated connections beyond the other three quarters count as unauthenticated.
//
// An address, or an IPv6 /64, gets at most half of the slots, and a sixteenth for unauthenticated
// connections, so a flood from one address is refused before it displaces other clients. It is
// safe for concurrent use.
type connSlots struct {
	most               int
	maxAuthenticated   int // 0: clients do not authenticate
	ofAddress          int // connections; 0: no limit per address
	maxUnauthenticated int // unauthenticated connections per address

	mu              sync.Mutex
	open            int
	authenticated   int
	unauthenticated list.List // of *slotConn, oldest first
	addresses       map[netip.Prefix]*addressSlots
}

type addressSlots struct{ open, unauthenticated int }

// minAddressSlots is the minimum share of an address, so that a small maximum still leaves it usable.
const minAddressSlots = 16

func newConnSlots(most int, g *gate) *connSlots {
	p := &connSlots{most: most, addresses: make(map[netip.Prefix]*addressSlots)}
	if g == nil {
		return p
	}
	p.ofAddress, p.maxUnauthenticated = max(most/2, minAddressSlots), max(most/16, minAddressSlots)
	if g.auth.TLS.CA != "" || g.auth.Clients != "" {
		p.maxAuthenticated = most - most/4
	}
	return p
}

// take gives a connection a slot and returns the connection that it displaces, which the
// caller closes. Without a free slot it returns nil and the reason.
func (p *connSlots) take(c net.Conn) (conn, displaced *slotConn, why Reason) {
	from := remoteNetwork(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.addresses[from]
	if of == nil {
		of = &addressSlots{}
	}
	// A Unix socket has no address.
	if from.IsValid() && p.ofAddress > 0 && (of.open >= p.ofAddress || of.unauthenticated >= p.maxUnauthenticated) {
		return nil, nil, AddressConns
	}
	if p.open >= p.most {
		oldest := p.unauthenticated.Front()
		if oldest == nil {
			return nil, nil, TooManyConns
		}
		displaced, _ = oldest.Value.(*slotConn)
		p.leave(displaced)
	}
	conn = &slotConn{Conn: c, slots: p, from: from}
	p.open++
	of.open++
	p.addresses[from] = of
	if p.maxAuthenticated > 0 {
		of.unauthenticated++
		conn.waiting = p.unauthenticated.PushBack(conn)
	}
	return conn, displaced, 0
}

// leave gives a slot back, once. The caller holds mu.
func (p *connSlots) leave(c *slotConn) {
	if c.left {
		return
	}
	c.left = true
	of := p.addresses[c.from]
	p.open--
	of.open--
	switch {
	case c.waiting != nil:
		p.unauthenticated.Remove(c.waiting)
		of.unauthenticated--
	case p.maxAuthenticated > 0:
		p.authenticated--
	}
	if of.open == 0 {
		delete(p.addresses, c.from)
	}
}

// slotConn holds a slot until it closes.
type slotConn struct {
	net.Conn
	slots         *connSlots
	from          netip.Prefix
	authenticated atomic.Bool

	// Guarded by connSlots.mu.
	waiting *list.Element // its element in connSlots.unauthenticated; nil if authenticated
	left    bool
}

// Close implements net.Conn.
func (c *slotConn) Close() error {
	c.slots.mu.Lock()
	c.slots.leave(c)
	c.slots.mu.Unlock()
	return c.Conn.Close()
}

// authenticate lets the connection keep its slot if the quota of authenticated connections has room.
func (c *slotConn) authenticate() {
	if c.authenticated.Load() {
		return
	}
	p := c.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.left || c.waiting == nil || p.authenticated >= p.maxAuthenticated {
		return
	}
	p.unauthenticated.Remove(c.waiting)
	c.waiting = nil
	p.addresses[c.from].unauthenticated--
	p.authenticated++
	c.authenticated.Store(true)
}

type slotConnKey struct{}

// connContext is a hook for http.Server that lets authenticatedBy find the connection of a request.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, slotConnKey{}, c)
}

// authenticatedBy marks the connection of an authenticated request as authenticated.
func authenticatedBy(r *http.Request) {
	if c, ok := r.Context().Value(slotConnKey{}).(*slotConn); ok {
		c.authenticate()
	}
}

// remoteNetwork returns the IPv4 address or the IPv6 /64 at the other end of a connection, the
// zero Prefix for a Unix socket.
func remoteNetwork(c net.Conn) netip.Prefix {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return networkOf(a.AddrPort().Addr())
}

// networkOf returns an IPv4 address as a /32 and an IPv6 address as its /64, since one client
// can use any address of its /64.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // fails only without an address
	return p
}
