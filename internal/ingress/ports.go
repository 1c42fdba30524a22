package ingress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// retryPeriod is the pause between two attempts to open a port that is taken.
const retryPeriod = 5 * time.Second

// portConflict is the reason of the event of Ingresses whose port is taken.
const portConflict = "PortConflict"

// ports opens the ports to serve on while there is an Ingress or a Gateway, and closes
// them without one. A port that is taken is tried again: the node works without it.
type ports struct {
	listen  func(port int) (net.Listener, error)
	serve   func(ctx context.Context, l net.Listener, secure bool) error
	changed func() // is called when a port was opened or closed, or could not be
	wake    chan struct{}
	all     []*port

	mu     sync.Mutex // guards the following
	wanted bool
}

// port is one of the ports.
type port struct {
	number    int
	secure    bool
	condition string

	// run alone uses these. end is nil while the port is closed.
	end   context.CancelFunc
	ended chan struct{}

	isOpen bool  // the mutex of ports guards it
	err    error // likewise: why the port is not open
}

func newPorts(listen func(int) (net.Listener, error), serve func(context.Context, net.Listener, bool) error, http, https int, changed func()) *ports {
	return &ports{
		listen: listen, serve: serve, changed: changed, wake: make(chan struct{}, 1),
		all: []*port{{number: http, condition: "HTTP"}, {number: https, secure: true, condition: "HTTPS"}},
	}
}

// want says whether the ports are to be open.
func (p *ports) want(wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted == wanted {
		return
	}
	p.wanted = wanted
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// open reports whether a port is open.
func (p *ports) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.isOpen {
			return true
		}
	}
	return false
}

// problems returns why ports are not open.
func (p *ports) problems() []problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []problem
	for _, one := range p.all {
		if one.err != nil {
			all = append(all, problem{portConflict, one.err.Error()})
		}
	}
	return all
}

// run opens and closes the ports until ctx ends.
func (p *ports) run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		for _, one := range p.all {
			if !p.adjust(ctx, one) {
				again = time.After(retryPeriod)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-again:
		}
	}
}

// adjust opens or closes a port. It returns false if the port could not be opened.
func (p *ports) adjust(ctx context.Context, one *port) bool {
	p.mu.Lock()
	wanted := p.wanted
	p.mu.Unlock()
	switch {
	case wanted && one.end == nil:
		l, err := p.listen(one.number)
		if err == nil {
			p.start(ctx, one, l)
		}
		p.set(ctx, one, one.explain(err))
		return err == nil
	case !wanted && one.end != nil:
		one.end()
		<-one.ended
		one.end = nil
	}
	p.set(ctx, one, nil)
	return true
}

// start serves the connections of a port.
func (p *ports) start(ctx context.Context, one *port, l net.Listener) {
	serving, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	one.end, one.ended = end, ended
	supervise.Go(ctx, func() {
		defer close(ended)
		if err := p.serve(serving, l, one.secure); err != nil {
			supervise.Fail(ctx, err)
		}
	})
}

// set records whether a port is open, and why it is not.
func (p *ports) set(ctx context.Context, one *port, err error) {
	p.mu.Lock()
	isOpen := one.end != nil
	same := isOpen == one.isOpen && (err == nil) == (one.err == nil)
	one.isOpen, one.err = isOpen, err
	p.mu.Unlock()
	if same {
		return
	}
	supervise.Report(ctx, one.condition, err)
	switch log := klog.FromContext(ctx).WithValues("port", one.number); {
	case err != nil:
		log.Error(err, "Ingresses are not served on a port, will try again", "in", retryPeriod)
	case isOpen:
		log.Info("Serving Ingresses")
	default:
		log.Info("Serving Ingresses no more")
	}
	p.changed()
}

// explain returns the error for people of an attempt to open a port.
func (o *port) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d of the node is taken, by a program, a Service, a pod or another cluster, and no Ingress is served there: stop what has it, or choose another port for Ingresses", o.number)
	}
	return fmt.Errorf("port %d of the node cannot be opened, and no Ingress is served there: %w", o.number, err)
}
