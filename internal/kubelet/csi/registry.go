package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Registry has the drivers of the node, and shows them in its CSINode object. It
// handles the sockets of drivers.
type Registry struct {
	volumes *Volumes

	writing sync.Mutex // held while the CSINode object is written

	owner types.UID // the Node object of the CSINode object, for run only

	mu      sync.Mutex // guards drivers
	drivers map[string]*driver
}

// driver is a registered driver.
type driver struct {
	endpoint endpoint
	version  *version.Version
	asked    time.Time // when it was last asked about the node
	node     types.UID // the Node object that shows it
}

func newRegistry(v *Volumes) *Registry {
	return &Registry{volumes: v, drivers: make(map[string]*driver)}
}

// node returns the UID of the newest known Node object, "" if there is none.
func (r *Registry) node() types.UID {
	if node := r.volumes.Node(); node != nil {
		return node.UID
	}
	return ""
}

// endpoint returns where a driver answers.
func (r *Registry) endpoint(name string) (endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drivers[name]
	if d == nil {
		return endpoint{}, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	}
	return d.endpoint, nil
}

// at returns where a plugin answers.
func (r *Registry) at(p pluginwatcher.Plugin) endpoint {
	if p.Usual {
		return endpoint{p.Endpoint, &r.volumes.Paths}
	}
	return endpoint{socket: p.Endpoint}
}

// Has reports whether a driver is registered.
func (r *Registry) Has(name string) bool {
	_, err := r.endpoint(name)
	return err == nil
}

// Validate implements pluginwatcher.Handler.
func (r *Registry) Validate(p pluginwatcher.Plugin) error {
	if err := checkDriver(p.Name); err != nil {
		return err
	}
	highest, err := highestVersion(p.Versions)
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", p.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.drivers[p.Name]; known != nil && highest.LessThan(known.version) {
		return fmt.Errorf("validation failed for CSI driver %s at endpoint %s: another driver with the same name is already registered with a higher supported version: %q", p.Name, p.Endpoint, known.version)
	}
	return nil
}

// highestVersion returns the highest of a driver's versions that is supported.
func highestVersion(versions []string) (*version.Version, error) {
	var highest *version.Version
	for _, text := range versions {
		v, err := version.ParseGeneric(text)
		if err != nil || v.Major() > 1 {
			continue
		}
		if highest == nil || highest.LessThan(v) {
			highest = v
		}
	}
	if highest == nil || highest.Major() < 1 {
		return nil, fmt.Errorf("none of the CSI versions reported by this driver are supported: %q", versions)
	}
	return highest, nil
}

// Register implements pluginwatcher.Handler.
func (r *Registry) Register(ctx context.Context, p pluginwatcher.Plugin) error {
	highest, err := highestVersion(p.Versions)
	if err != nil {
		return err
	}
	at := r.at(p)
	about, err := askNode(ctx, at)
	if err != nil {
		return err
	}
	node := r.node()
	if err := r.install(ctx, p.Name, about); err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	r.mu.Lock()
	r.drivers[p.Name] = &driver{endpoint: at, version: highest, asked: time.Now(), node: node}
	r.mu.Unlock()
	r.volumes.wakePods(p.Name)
	r.volumes.again.Store(true)
	r.volumes.wakeUnstager()
	return nil
}

// Deregister implements pluginwatcher.Handler.
func (r *Registry) Deregister(ctx context.Context, p pluginwatcher.Plugin) {
	r.mu.Lock()
	known := r.drivers[p.Name]
	if known == nil || known.endpoint != r.at(p) {
		r.mu.Unlock()
		return
	}
	delete(r.drivers, p.Name)
	r.mu.Unlock()
	if err := r.uninstall(ctx, p.Name); err != nil {
		klog.FromContext(ctx).Error(err, "Removing a CSI driver from the CSINode object failed", "driver", p.Name)
	}
}

// Bounds of what a driver says about the node.
const (
	maxNodeID   = 256
	maxSegments = 64
)

// askNode asks a driver about the node.
func askNode(ctx context.Context, at endpoint) (*csipb.NodeGetInfoResponse, error) {
	var about *csipb.NodeGetInfoResponse
	err := call(ctx, at, func(ctx context.Context, node csipb.NodeClient) (err error) {
		about, err = node.NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("NodeGetInfo: %w", err)
	}
	if id := about.GetNodeId(); id == "" || len(id) > maxNodeID {
		return nil, fmt.Errorf("NodeGetInfo: the node id has %d bytes, want 1 to %d", len(id), maxNodeID)
	}
	segments := about.GetAccessibleTopology().GetSegments()
	if len(segments) > maxSegments {
		return nil, fmt.Errorf("NodeGetInfo: the topology has %d segments, at most %d are allowed", len(segments), maxSegments)
	}
	for key, value := range segments {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(problems) > 0 {
			return nil, fmt.Errorf("NodeGetInfo: topology %.64q=%.64q is not a label: %s", key, value, problems[0])
		}
	}
	return about, nil
}

// updatePeriod is how often run looks for drivers to ask again.
const updatePeriod = 10 * time.Second

// ensure creates the CSINode object of a Node object that it has not seen.
func (r *Registry) ensure(ctx context.Context) error {
	node := r.node()
	if node != "" && node == r.owner {
		return nil
	}
	if err := r.write(ctx, nil); err != nil {
		return err
	}
	r.owner = node
	return nil
}

// run creates the CSINode object, and asks drivers from time to time how many
// volumes the node can have, until ctx ends. After the Node object was deleted, it
// shows the drivers for the next one.
func (r *Registry) run(ctx context.Context) {
	if r.volumes.Client == nil {
		return
	}
	for wait := firstRetry; ; wait = min(2*wait, updatePeriod) {
		if r.tryEnsure(ctx) {
			break
		}
		if !supervise.Pause(ctx, wait) {
			return
		}
	}
	var group supervise.WaitGroup
	defer group.Wait()
	supervise.Every(ctx, updatePeriod, func() {
		r.tryEnsure(ctx)
		for _, name := range r.due() {
			group.Go(ctx, func() { supervise.Contain(ctx, "volumes", func() { r.ask(ctx, name) }) })
		}
	})
}

// tryEnsure calls ensure, logs an error, and reports success.
func (r *Registry) tryEnsure(ctx context.Context) bool {
	err := r.ensure(ctx)
	if err != nil && !errors.Is(err, errNoNode) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Creating the CSINode object failed, will try again")
	}
	return err == nil
}

// due returns the drivers that are to be asked again now: those that the Node object
// does not show, and those whose period has passed.
func (r *Registry) due() []string {
	node := r.node()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.drivers)) {
		d := r.drivers[name]
		if node != "" && d.node != node || r.expired(name, d) {
			d.asked = time.Now()
			out = append(out, name)
		}
	}
	return out
}

// expired reports whether a driver has not been asked for as long as its CSIDriver
// object says.
func (r *Registry) expired(name string, d *driver) bool {
	object, err := r.volumes.driverObject(name)
	if err != nil || object == nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return false
	}
	period := max(time.Duration(min(*object.Spec.NodeAllocatableUpdatePeriodSeconds, int64(time.Hour*24*365/time.Second)))*time.Second, updatePeriod)
	return time.Since(d.asked) >= period
}

// ask updates what the CSINode and Node objects say about a driver.
func (r *Registry) ask(ctx context.Context, name string) {
	at, err := r.endpoint(name)
	if err != nil {
		return // it is gone
	}
	node := r.node()
	about, err := askNode(ctx, at)
	if err == nil {
		if again, gone := r.endpoint(name); gone != nil || again != at {
			return
		}
		err = r.install(ctx, name, about)
	}
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Updating what the API says about a CSI driver failed, will try again", "driver", name)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drivers[name]; d != nil && d.endpoint == at {
		d.node = node
	}
}
