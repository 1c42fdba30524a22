package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease is given to the keys of one ttl for a while, so that thousands of
// events do not make thousands of leases. Keys then live up to that while
// longer than asked for.
const (
	leaseShare  = 20          // a lease is reused for ttl/leaseShare ...
	leaseWindow = time.Minute // ... but not longer than this ...
	leaseKeys   = 1000        // ... and not for more keys than this
)

type leases struct {
	client  clientv3.Lease
	mu      sync.Mutex // guards current, and is held while a lease is granted
	current map[time.Duration]*lease
}

// lease is the one in use for a ttl.
type lease struct {
	id    clientv3.LeaseID
	until time.Time // of its reuse
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
		return 0, err // whoever held the lock waited for an etcd that does not answer
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
