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

// places limits the open connections of a listener. If clients authenticate, the first request
// with a valid credential proves a connection, and it keeps its place. Unauthenticated connections
// give way: once all places are taken, each new connection closes the oldest unauthenticated one. A
// quarter of the places is reserved for unauthenticated connections, so that a valid client always has
// time to authenticate. Authenticated connections beyond the other three quarters count as unauthenticated.
//
// An address, or an IPv6 /64, gets at most half of the places, and a sixteenth for unauthenticated
// connections, so a flood from one address is refused before it displaces other clients. It is
// safe for concurrent use.
type places struct {
	most               int
	maxAuthenticated   int // 0: clients do not authenticate
	ofAddress          int // connections; 0: no limit per address
	maxUnauthenticated int // unauthenticated connections per address

	mu              sync.Mutex
	open            int
	authenticated   int
	unauthenticated list.List // of *placedConn, oldest first
	addresses       map[netip.Prefix]*addressPlaces
}

type addressPlaces struct{ open, unauthenticated int }

// fewPlaces is the minimum share of an address, so that a small maximum still leaves it usable.
const fewPlaces = 16

func newPlaces(most int, g *gate) *places {
	p := &places{most: most, addresses: make(map[netip.Prefix]*addressPlaces)}
	if g == nil {
		return p
	}
	p.ofAddress, p.maxUnauthenticated = max(most/2, fewPlaces), max(most/16, fewPlaces)
	if g.auth.TLS.CA != "" || g.auth.Clients != "" {
		p.maxAuthenticated = most - most/4
	}
	return p
}

// take gives a connection a place and returns the connection that it displaces, which the
// caller closes. Without a free place it returns nil and the reason.
func (p *places) take(c net.Conn) (placed, displaced *placedConn, why Reason) {
	from := remoteNetwork(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.addresses[from]
	if of == nil {
		of = &addressPlaces{}
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
		displaced, _ = oldest.Value.(*placedConn)
		p.leave(displaced)
	}
	placed = &placedConn{Conn: c, places: p, from: from}
	p.open++
	of.open++
	p.addresses[from] = of
	if p.maxAuthenticated > 0 {
		of.unauthenticated++
		placed.waiting = p.unauthenticated.PushBack(placed)
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
		p.unauthenticated.Remove(c.waiting)
		of.unauthenticated--
	case p.maxAuthenticated > 0:
		p.authenticated--
	}
	if of.open == 0 {
		delete(p.addresses, c.from)
	}
}

// placedConn holds a place until it closes.
type placedConn struct {
	net.Conn
	places        *places
	from          netip.Prefix
	authenticated atomic.Bool

	// Guarded by places.mu.
	waiting *list.Element // its element in places.unauthenticated; nil if authenticated
	left    bool
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	c.places.mu.Lock()
	c.places.leave(c)
	c.places.mu.Unlock()
	return c.Conn.Close()
}

// authenticate lets the connection keep its place if the quota of authenticated connections has room.
func (c *placedConn) authenticate() {
	if c.authenticated.Load() {
		return
	}
	p := c.places
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

type placeKey struct{}

// connContext is a hook for http.Server that lets authenticatedBy find the connection of a request.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, placeKey{}, c)
}

// authenticatedBy marks the connection of an authenticated request as authenticated.
func authenticatedBy(r *http.Request) {
	if c, ok := r.Context().Value(placeKey{}).(*placedConn); ok {
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
