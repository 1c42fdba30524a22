package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys with the same ttl share a lease, so that thousands of events do not need
// thousands of leases. A key may outlive its ttl by up to ttl/leaseShare.
const (
	leaseShare  = 20          // a lease is reused for ttl/leaseShare ...
	leaseWindow = time.Minute // ... but not longer than this ...
	leaseKeys   = 1000        // ... and not for more keys than this
)

// leases grants leases. It is safe for concurrent use.
type leases struct {
	client  clientv3.Lease
	mu      sync.Mutex // guards current, and is held while a lease is granted
	current map[time.Duration]*lease
}

// lease is the current lease of a ttl.
type lease struct {
	id    clientv3.LeaseID
	until time.Time // not reused after this
	keys  int
}

func newLeases(client clientv3.Lease) *leases {
	return &leases{client: client, current: map[time.Duration]*lease{}}
}

// get returns a lease that lasts at least ttl from now.
func (l *leases) get(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err // etcd did not answer while ctx waited for the lock
	}
	now := time.Now()
	if c := l.current[ttl]; c != nil && now.Before(c.until) && c.keys < leaseKeys {
		c.keys++
		return c.id, nil
	}
	window := min(ttl/leaseShare, leaseWindow)
	seconds := int64((ttl + window + time.Second - 1) / time.Second)
	granted, err := l.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	l.current[ttl] = &lease{id: granted.ID, until: now.Add(window), keys: 1}
	return granted.ID, nil
}
