package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
	"github.com/coracle-io/coracle/internal/kubelet/unixsocket"
	"github.com/coracle-io/coracle/internal/printable"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Bounds of calls to drivers, and of their answers.
const (
	callTimeout = 45 * time.Second // upstream's
	maxAnswer   = 16 << 20
	maxText     = 1 << 10 // of an error
	// maxClaimDevices and maxClaim bound what a driver answers for one claim.
	// Allocations have at most 32 devices.
	maxClaimDevices = 1024
	maxClaim        = 256 << 10 // bytes
	maxRedial       = 5 * time.Second
)

// Registry has the drivers of the node. It handles the sockets of drivers.
type Registry struct {
	manager *Manager
	timeout time.Duration // of calls
	added   chan *plugin  // to run

	mu      sync.Mutex // guards drivers and what they contain
	drivers map[string]*driver
}

// driver has the plugins of a driver in the order of their registration. While a
// driver is updated, there may be two of them. Without a plugin that answers,
// the ResourceSlices of the driver are deleted after some time.
type driver struct {
	plugins []*plugin
	lost    time.Time // since when no plugin is connected
	wiped   bool      // its slices are deleted since then
}

// usable reports whether a plugin is connected.
func (d *driver) usable() bool {
	return slices.ContainsFunc(d.plugins, func(p *plugin) bool { return p.connected })
}

// plugin is an instance of a driver.
type plugin struct {
	driver, endpoint string
	conn             *grpc.ClientConn
	client           drapb.DRAPluginClient
	health           healthv1.DRAResourceHealthClient // nil: the plugin does not report it
	gone             chan struct{}                    // closed when the plugin is not registered any more

	// Guarded by the mutex of the registry.
	registrations int // of this endpoint
	connected     bool
}

func newRegistry(m *Manager) *Registry {
	return &Registry{manager: m, timeout: callTimeout, added: make(chan *plugin), drivers: make(map[string]*driver)}
}

// Validate implements pluginwatcher.Handler.
func (r *Registry) Validate(p pluginwatcher.Plugin) error {
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		return fmt.Errorf("invalid name of a DRA driver %q: %s", p.Name, problems[0])
	}
	if len(p.Name) > resourceapi.DriverNameMaxLength {
		return fmt.Errorf("the name of the DRA driver %q has more than %d characters", p.Name, resourceapi.DriverNameMaxLength)
	}
	_, err := service(p)
	return err
}

// service returns the newest of the services to prepare claims that a plugin has.
func service(p pluginwatcher.Plugin) (string, error) {
	if len(p.Versions) == 0 {
		return "", fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: empty list of supported gRPC services (aka supported versions)", p.Name, p.Endpoint)
	}
	known := []string{drapb.DRAPluginService, drapbv1beta1.DRAPluginService}
	for _, name := range known {
		if slices.Contains(p.Versions, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: none of services supported by the plugin (%q) are supported by the kubelet (%q)", p.Name, p.Endpoint, p.Versions, known)
}

// Register implements pluginwatcher.Handler. It blocks until run can follow the
// plugin.
func (r *Registry) Register(ctx context.Context, p pluginwatcher.Plugin) error {
	added, err := r.add(p)
	if err != nil || added == nil {
		return err
	}
	select {
	case r.added <- added:
		return nil
	case <-ctx.Done():
		return ctx.Err() // Deregister follows
	}
}

// add makes a plugin known. It returns nil if the endpoint is known already.
func (r *Registry) add(p pluginwatcher.Plugin) (*plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drivers[p.Name]
	if d == nil {
		d = &driver{lost: time.Now()}
	}
	if i := d.index(p.Endpoint); i >= 0 {
		d.plugins[i].registrations++
		return nil, nil
	}
	added, err := r.connect(p)
	if err != nil {
		return nil, err
	}
	d.plugins = append(d.plugins, added)
	r.drivers[p.Name] = d
	return added, nil
}

func (d *driver) index(endpoint string) int {
	return slices.IndexFunc(d.plugins, func(p *plugin) bool { return p.endpoint == endpoint })
}

// connect returns a plugin, to which a connection is opened with the first call
// or by run.
func (r *Registry) connect(p pluginwatcher.Plugin) (*plugin, error) {
	chosen, err := service(p)
	if err != nil {
		return nil, err
	}
	redial := backoff.DefaultConfig
	redial.MaxDelay = maxRedial
	conn, err := unixsocket.Client(p.Endpoint, maxAnswer,
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: maxRedial}),
		grpc.WithUnaryInterceptor(r.manager.metrics.calls(p.Name)))
	if err != nil {
		return nil, fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w", p.Name, p.Endpoint, err)
	}
	added := &plugin{driver: p.Name, endpoint: p.Endpoint, conn: conn, registrations: 1, gone: make(chan struct{})}
	if chosen == drapb.DRAPluginService {
		added.client = drapb.NewDRAPluginClient(conn)
	} else {
		added.client = drapbv1beta1.V1Beta1ClientWrapper{DRAPluginClient: drapbv1beta1.NewDRAPluginClient(conn)}
	}
	if !r.manager.config.Features.Enabled(feature.ResourceHealthStatus) {
		return added, nil
	}
	switch {
	case slices.Contains(p.Versions, healthv1.DRAResourceHealthService):
		added.health = healthv1.NewDRAResourceHealthClient(conn)
	case slices.Contains(p.Versions, healthv1alpha1.DRAResourceHealthService):
		added.health = healthv1.V1Alpha1ClientWrapper{Client: healthv1alpha1.NewDRAResourceHealthClient(conn)}
	}
	return added, nil
}

// Deregister implements pluginwatcher.Handler.
func (r *Registry) Deregister(_ context.Context, p pluginwatcher.Plugin) {
	r.mu.Lock()
	d := r.drivers[p.Name]
	if d == nil {
		r.mu.Unlock()
		return
	}
	i := d.index(p.Endpoint)
	if i < 0 {
		r.mu.Unlock()
		return
	}
	removed := d.plugins[i]
	if removed.registrations--; removed.registrations > 0 {
		r.mu.Unlock()
		return
	}
	d.plugins = slices.Delete(d.plugins, i, i+1)
	d.update()
	r.mu.Unlock()
	close(removed.gone)
	_ = removed.conn.Close()
}

// update sets since when the driver is lost, after a change of its plugins. The
// registry's mutex is held.
func (d *driver) update() {
	switch {
	case d.usable():
		d.lost, d.wiped = time.Time{}, false
	case d.lost.IsZero():
		d.lost = time.Now()
	}
}

// plugin returns the plugin to call of a driver: the newest that is connected,
// or else the newest.
func (r *Registry) plugin(name string) (*plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drivers[name]
	if d == nil || len(d.plugins) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	for _, p := range slices.Backward(d.plugins) {
		if p.connected {
			return p, nil
		}
	}
	return d.plugins[len(d.plugins)-1], nil
}

// run follows the plugins that are registered until ctx ends, and deletes the
// ResourceSlices of drivers that are lost.
func (r *Registry) run(ctx context.Context) {
	var group supervise.WaitGroup
	defer group.Wait()
	group.Go(ctx, func() { r.wipe(ctx) })
	for {
		select {
		case p := <-r.added:
			group.Go(ctx, func() {
				supervise.Contain(ctx, "resource claims", func() { r.follow(ctx, p) })
			})
		case <-ctx.Done():
			r.close()
			return
		}
	}
}

// close closes the connections to all plugins.
func (r *Registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range maps.Values(r.drivers) {
		for _, p := range d.plugins {
			_ = p.conn.Close()
		}
	}
}

// follow keeps the connection to a plugin open and follows the health of its
// devices, until the plugin is gone.
func (r *Registry) follow(ctx context.Context, p *plugin) {
	ctx, cancel := context.WithCancel(ctx)
	var group supervise.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(ctx, func() {
		select {
		case <-p.gone:
			cancel()
		case <-ctx.Done():
		}
	})
	if p.health != nil {
		group.Go(ctx, func() {
			supervise.Contain(ctx, "resource claims", func() { r.manager.watchHealth(ctx, p) })
		})
	}
	for {
		now := p.conn.GetState()
		r.mu.Lock()
		if p.connected = now == connectivity.Ready; r.drivers[p.driver] != nil {
			r.drivers[p.driver].update()
		}
		r.mu.Unlock()
		if now == connectivity.Ready {
			r.manager.retry()
		}
		if now == connectivity.Idle {
			p.conn.Connect()
		}
		if !p.conn.WaitForStateChange(ctx, now) {
			return
		}
	}
}

// messages returns the claims as drivers get them.
func messages(claims []*claim) []*drapb.Claim {
	out := make([]*drapb.Claim, len(claims))
	for i, c := range claims {
		out[i] = &drapb.Claim{Namespace: c.Namespace, Uid: string(c.ClaimUID), Name: c.ClaimName}
	}
	return out
}

// call calls a method of a driver. It bounds the text of an error.
func call[Request, Answer any](ctx context.Context, timeout time.Duration, method func(context.Context, *Request, ...grpc.CallOption) (*Answer, error), request *Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := method(ctx, request)
	if s, ok := status.FromError(err); ok && err != nil {
		return nil, status.Error(s.Code(), bounded(s.Message()))
	}
	return answer, err
}

// bounded returns the text of a driver as it is shown.
func bounded(text string) string {
	return printable.Line(strings.ToValidUTF8(text[:min(len(text), maxText)], ""))
}

// settle calls done for each claim for which a driver answers without an error,
// within the bounds, and returns why a claim is not done.
func settle[Of interface {
	proto.Message
	GetError() string
}](method string, claims []*claim, answer map[string]Of, done func(c *claim, of Of) error) error {
	for _, uid := range slices.Sorted(maps.Keys(answer)) {
		if !slices.ContainsFunc(claims, func(c *claim) bool { return string(c.ClaimUID) == uid }) {
			return fmt.Errorf("%s returned result for unknown claim UID %s", method, bounded(uid))
		}
	}
	var failed []error
	for _, c := range claims {
		of, ok := answer[string(c.ClaimUID)]
		switch {
		case !ok:
		case of.GetError() != "":
			failed = append(failed, fmt.Errorf("%s failed for ResourceClaim %s: %s", method, c.ClaimName, bounded(of.GetError())))
		case proto.Size(of) > maxClaim:
			failed = append(failed, fmt.Errorf("%s: the answer for ResourceClaim %s has %d bytes, more than %d", method, c.ClaimName, proto.Size(of), maxClaim))
		default:
			if err := done(c, of); err != nil {
				failed = append(failed, fmt.Errorf("%s: ResourceClaim %s: %w", method, c.ClaimName, err))
			}
		}
	}
	if skipped := len(claims) - len(answer); skipped > 0 {
		failed = append(failed, fmt.Errorf("%s skipped %d ResourceClaims", method, skipped))
	}
	return errors.Join(failed...)
}
