package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// mostClients bounds the clients that a balancer remembers for session affinity. Those
// beyond it get any endpoint.
const mostClients = 65_535

// balancer chooses endpoints in turn, or with session affinity the one that a client had
// last.
type balancer struct {
	mu        sync.Mutex // guards the following
	endpoints []netip.AddrPort
	next      int // the index of the next one
	affinity  time.Duration
	clients   map[netip.Addr]choice
}

// choice is the endpoint that a client had last, and when.
type choice struct {
	endpoint netip.AddrPort
	at       time.Time
}

// set sets the endpoints and how long a client stays with its own; 0 turns that off.
func (b *balancer) set(endpoints []netip.AddrPort, affinity time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.endpoints, endpoints) {
		b.endpoints, b.next = slices.Clone(endpoints), 0
	}
	if b.affinity = affinity; affinity == 0 {
		b.clients = nil
	}
}

// choose returns an endpoint for a client. ok is false if there is none.
func (b *balancer) choose(client netip.Addr, now time.Time) (endpoint netip.AddrPort, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return netip.AddrPort{}, false
	}
	last, known := b.clients[client]
	if known && now.Sub(last.at) < b.affinity && slices.Contains(b.endpoints, last.endpoint) {
		endpoint = last.endpoint
	} else {
		endpoint = b.endpoints[b.next%len(b.endpoints)]
		b.next = (b.next + 1) % len(b.endpoints)
	}
	if b.affinity > 0 && b.hasRoom(client, now) {
		b.clients[client] = choice{endpoint, now}
	}
	return endpoint, true
}

// hasRoom makes room for a client, if it can. The caller must hold the mutex.
func (b *balancer) hasRoom(client netip.Addr, now time.Time) bool {
	if b.clients == nil {
		b.clients = map[netip.Addr]choice{}
	}
	if _, known := b.clients[client]; known || len(b.clients) < mostClients {
		return true
	}
	for old, c := range b.clients {
		if now.Sub(c.at) >= b.affinity {
			delete(b.clients, old)
		}
	}
	return len(b.clients) < mostClients
}

// forget makes a client choose anew: its endpoint does not answer.
func (b *balancer) forget(client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, client)
}
