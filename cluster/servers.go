package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// servers holds the current instance of the API server. An instance that fails
// as a whole is replaced by another one on the same store, and components in
// this process move to it.
type servers struct {
	mu      sync.Mutex // guards the following
	current *instance
	changed chan struct{} // closed and replaced when current changes; nil without waiters
}

// instance is one run of the API server.
type instance struct {
	life     context.Context // ends with it
	provider client.Provider
	admin    *client.Client
}

func (s *servers) set(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = i
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// get returns the current instance, or nil and a channel that is closed when
// there is one.
func (s *servers) get() (*instance, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.life.Err() == nil {
		return s.current, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return nil, s.changed
}

// errServerEnded is the cause with which components of an ended API server end.
var errServerEnded = errors.New("its API server has ended")

// with returns a component that runs with a provider of the current instance,
// and restarts with the next instance when that has ended.
func (s *servers) with(run func(context.Context, client.Provider) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for ctx.Err() == nil {
			i, changed := s.get()
			if i == nil {
				supervise.Report(ctx, "APIServer", errors.New("waiting for the API server"))
				select {
				case <-ctx.Done():
				case <-changed:
				}
				continue
			}
			supervise.Report(ctx, "APIServer", nil)
			err := supervise.Run(ctx, func(ctx context.Context) error {
				stop := context.AfterFunc(i.life, func() { supervise.Fail(ctx, errServerEnded) })
				defer stop()
				return run(ctx, i.provider)
			})
			panicked := (*supervise.Panic)(nil)
			if i.life.Err() == nil || errors.As(err, &panicked) || errors.Is(err, supervise.ErrAbandoned) {
				return err
			}
		}
		return nil
	}
}

// RoundTrip implements http.RoundTripper: it passes the request to the current
// instance, as a cluster admin.
func (s *servers) RoundTrip(request *http.Request) (*http.Response, error) {
	i, _ := s.get()
	if i == nil {
		return nil, errors.New("the API server is being started again")
	}
	return i.admin.Config.Transport.RoundTrip(request)
}

// startAPIServer starts the API server and returns once it answers. It returns
// an error if the configuration is invalid.
func (p *controlPlane) startAPIServer(ctx context.Context, s store.Store) error {
	built := make(chan error, 1)
	first := true
	p.apiServerDone = p.group.Go(ctx, "apiserver", func(ctx context.Context) error {
		err := p.runAPIServer(ctx, s, func() {
			first = false
			select {
			case built <- nil:
			default:
			}
		})
		if first && err != nil {
			built <- err
			<-ctx.Done()
		}
		return err
	})
	select {
	case <-ctx.Done():
		return nil
	case err := <-built:
		if err != nil {
			return err
		}
	}
	for {
		i, changed := p.servers.get()
		if i != nil {
			config := rest.CopyConfig(i.admin.Config)
			config.Transport = &p.servers
			kube, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.client = &reached{kubernetes: kube, config: config}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// runAPIServer runs one instance. It calls built when the instance is about to
// start.
func (p *controlPlane) runAPIServer(ctx context.Context, s store.Store, built func()) error {
	// Admission works as long as requests are served.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	api, err := apiserver.New(lasting, p.api, s, p.keys)
	if err != nil {
		return err
	}
	admin, err := api.Provider.As("kubernetes-admin", "system:masters", "system:authenticated")
	if err != nil {
		return err
	}
	if err := api.Show(p.group.Metrics()); err != nil {
		return fmt.Errorf("count failures of components: %w", err)
	}
	listener := p.takeListener()
	if listener == nil && !p.settings.InProcess {
		if listener, err = p.listen(); err != nil {
			return err
		}
	}
	built()
	supervise.Go(ctx, func() {
		select {
		case <-ctx.Done():
		case <-api.Ready():
			p.servers.set(&instance{life: ctx, provider: api.Provider, admin: admin})
		}
	})
	return api.Run(ctx, listener)
}
