package httpserver

import (
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxUnknown is how many connections a door holds open whose client has
	// not proved who it is, in the middle of a handshake for example.
	maxUnknown = 2048
	// leastStay is how long such a connection stays in any case: longer than a
	// handshake and a request take.
	leastStay = time.Second
)

// Door is a listener that bounds the connections of unknown clients: when
// there are too many, the one that came first has to go. A client that a
// component knows (see Known) stays, however many there are.
type Door struct {
	net.Listener
	most int

	mu      sync.Mutex // guards the following
	unknown list.List  // of *visitor, as they came
}

// NewDoor puts a door before a listener.
func NewDoor(l net.Listener) *Door { return &Door{Listener: l, most: maxUnknown} }

// visitor is a connection.
type visitor struct {
	net.Conn
	door  *Door
	since time.Time
	known atomic.Bool
	place *list.Element // guarded by the door's mutex; nil outside its list
}

type visitorKey struct{}

// Known says that a client of whom the context's request is has proved who it is.
func Known(ctx context.Context) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok && v.known.CompareAndSwap(false, true) {
		v.door.forget(v)
	}
}

// Accept implements net.Listener. Connections wait outside while the door is
// full of such as have just come.
func (d *Door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: conn, door: d, since: time.Now()}
	for first := d.enter(v); first != nil; first = d.enter(v) {
		if stays := leastStay - time.Since(first.since); stays > 0 {
			time.Sleep(stays)
		}
		if !first.known.Load() {
			_ = first.Close()
		}
	}
	return v, nil
}

// enter takes a visitor in, or returns who has to go before that.
func (d *Door) enter(v *visitor) (first *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unknown.Len() >= d.most {
		return d.unknown.Front().Value.(*visitor)
	}
	v.place = d.unknown.PushBack(v)
	return nil
}

func (d *Door) forget(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.place != nil {
		d.unknown.Remove(v.place)
		v.place = nil
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.door.forget(v)
	return v.Conn.Close()
}
