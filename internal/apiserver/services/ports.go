package services

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int32 }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// portsKey is the key under which upstream stores the allocated node ports.
const portsKey = "/registry/ranges/servicenodeports"

// ports allocates node ports by setting bits of one stored value.
type ports struct {
	limits PortRange
	store  store.Store
}

var errPortTaken = errors.New("provided port is already allocated")

// bitmap has the allocated ports of a range in the stored form: a big-endian
// number whose bit 0 is the first port.
type bitmap struct {
	limits PortRange
	bits   *big.Int
	// dryRun makes setting ports outside of limits succeed without effect. As
	// upstream, a dry run checks only whether a port is allocated.
	dryRun bool
}

func (b *bitmap) has(port int32) bool {
	return b.within(port) && b.bits.Bit(int(port-b.limits.First)) == 1
}

func (b *bitmap) within(port int32) bool {
	return port >= b.limits.First && port <= b.limits.Last
}

func (b *bitmap) set(port int32) error {
	if !b.within(port) {
		if b.dryRun {
			return nil
		}
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", b.limits)
	}
	if b.has(port) {
		return errPortTaken
	}
	b.bits.SetBit(b.bits, int(port-b.limits.First), 1)
	return nil
}

func (b *bitmap) clear(numbers ...int32) {
	for _, port := range numbers {
		if b.within(port) {
			b.bits.SetBit(b.bits, int(port-b.limits.First), 0)
		}
	}
}

// setAny allocates a random port, in the upper part of the range first.
func (b *bitmap) setAny() (int32, error) {
	size := b.limits.Last - b.limits.First + 1
	reserved := min(max(size/32, 16), 128)
	if reserved >= size {
		reserved = 0
	}
	for _, part := range [][2]int32{{reserved, size}, {0, reserved}} {
		count := part[1] - part[0]
		if count == 0 {
			continue
		}
		start := rand.Int32N(count)
		for i := range count {
			if port := b.limits.First + part[0] + (start+i)%count; !b.has(port) {
				return port, b.set(port)
			}
		}
	}
	return 0, errRangeFull
}

// read returns the stored bitmap.
func (p *ports) read(ctx context.Context) (*bitmap, error) {
	kv, err := p.store.Get(ctx, portsKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	b, _, err := p.decode(kv)
	return b, err
}

// decode returns a stored value and its bitmap. Both are new if there is
// none.
func (p *ports) decode(kv store.KeyValue) (*bitmap, *corev1.RangeAllocation, error) {
	b := &bitmap{limits: p.limits, bits: new(big.Int)}
	if kv.Revision == 0 {
		return b, newRange(p.limits), nil
	}
	stored, err := decodeRange(kv.Value)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", portsKey, err)
	}
	if stored.Range == p.limits.String() {
		b.bits.SetBytes(stored.Data)
	} else {
		b.adopt(stored)
	}
	return b, stored, nil
}

// adopt takes over the ports that are allocated in another range, as far as they are in
// this one: the administrator has changed the range.
func (b *bitmap) adopt(stored *corev1.RangeAllocation) {
	var limits PortRange
	if _, err := fmt.Sscanf(stored.Range, "%d-%d", &limits.First, &limits.Last); err != nil {
		return
	}
	before := bitmap{limits: limits, bits: new(big.Int).SetBytes(stored.Data)}
	for port := b.limits.First; port <= b.limits.Last; port++ {
		if before.has(port) {
			b.bits.SetBit(b.bits, int(port-b.limits.First), 1)
		}
	}
}

// change updates the stored bitmap. decide is called again after a
// conflicting write.
func (p *ports) change(ctx context.Context, decide func(*bitmap) error) error {
	return store.Change(ctx, p.store, portsKey, 0, func(current store.KeyValue) ([]byte, error) {
		b, stored, err := p.decode(current)
		if err != nil {
			return nil, err
		}
		before := new(big.Int).Set(b.bits)
		if err := decide(b); err != nil {
			return nil, err
		}
		if current.Revision != 0 && before.Cmp(b.bits) == 0 {
			return nil, nil
		}
		stored.Range, stored.Data = p.limits.String(), b.bits.Bytes()
		return resource.EncodeProtobuf(stored, stored.GroupVersionKind())
	})
}

func newRange(limits PortRange) *corev1.RangeAllocation {
	return &corev1.RangeAllocation{
		TypeMeta: metav1.TypeMeta{Kind: "RangeAllocation", APIVersion: "v1"},
		Range:    limits.String(),
	}
}

func decodeRange(value []byte) (*corev1.RangeAllocation, error) {
	const prefix = "k8s\x00"
	if len(value) < len(prefix) || string(value[:len(prefix)]) != prefix {
		return nil, errors.New("not a protobuf object")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(value[len(prefix):]); err != nil {
		return nil, err
	}
	stored := newRange(PortRange{})
	return stored, stored.Unmarshal(envelope.Raw)
}

// allocatePorts allocates the node ports that a service needs besides those
// of the old one.
func (a *Allocator) allocatePorts(ctx context.Context, t *allocation, s, old *corev1.Service, dryRun bool) error {
	if !mayHavePorts(s) {
		return nil
	}
	var held []int32
	if old != nil {
		held = portsOf(old)
	}
	var own []int32
	err := a.ports.try(ctx, dryRun, func(b *bitmap) error {
		var err error
		own, err = takePorts(b, s, held)
		return err
	})
	var at portError
	if errors.As(err, &at) {
		return invalid(s, field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(at.index).Child("nodePort"), at.port, at.err.Error())})
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	fillPorts(s, own)
	a.undoPorts(ctx, t, s, subtract(own, append(held, 0)), dryRun)
	return nil
}

func (a *Allocator) undoPorts(ctx context.Context, t *allocation, s *corev1.Service, numbers []int32, dryRun bool) {
	if !dryRun && len(numbers) > 0 {
		t.undo = append(t.undo, func() { a.release(context.WithoutCancel(ctx), s, nil, numbers) })
	}
}

// try is change, or, in a dry run, applies decide to a copy.
func (p *ports) try(ctx context.Context, dryRun bool, decide func(*bitmap) error) error {
	if !dryRun {
		return p.change(ctx, decide)
	}
	b, err := p.read(ctx)
	if err != nil {
		return err
	}
	b.dryRun = true
	return decide(b)
}

// portError is the error of allocating a node port, with the field that
// specifies it.
type portError struct {
	index int
	port  int32
	err   error
}

func (e portError) Error() string { return e.err.Error() }

// takePorts allocates the node ports of each of the service's ports in b, and
// returns them in order (0 for none). Ports that differ only in protocol
// share a node port.
func takePorts(b *bitmap, s *corev1.Service, held []int32) ([]int32, error) {
	numbers := make([]int32, len(s.Spec.Ports))
	mine := map[int32]bool{}
	for _, port := range held {
		mine[port] = true
	}
	for i, p := range s.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		if !mine[p.NodePort] {
			if err := b.set(p.NodePort); err != nil {
				return nil, portError{i, p.NodePort, err}
			}
			mine[p.NodePort] = true
		}
		numbers[i] = p.NodePort
	}
	if !needsPorts(s) {
		return numbers, nil
	}
	for i := range s.Spec.Ports {
		if numbers[i] != 0 {
			continue
		}
		if numbers[i] = sharedPort(s.Spec.Ports, numbers, i); numbers[i] != 0 {
			continue
		}
		port, err := b.setAny()
		if err != nil {
			return nil, err
		}
		numbers[i], mine[port] = port, true
	}
	return numbers, nil
}

// sharedPort returns the node port of another port with the same number and
// another protocol, or 0.
func sharedPort(all []corev1.ServicePort, numbers []int32, i int) int32 {
	for j, other := range all {
		if j != i && numbers[j] != 0 && other.Port == all[i].Port && other.Protocol != all[i].Protocol {
			return numbers[j]
		}
	}
	return 0
}

func fillPorts(s *corev1.Service, numbers []int32) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = numbers[i]
	}
}

// allocateHealthCheckPort allocates the port at which a service's load
// balancer asks nodes whether they have endpoints.
func (a *Allocator) allocateHealthCheckPort(ctx context.Context, t *allocation, s, old *corev1.Service, dryRun bool) error {
	if !needsHealthCheckPort(s) || old != nil && old.Spec.HealthCheckNodePort != 0 && old.Spec.HealthCheckNodePort == s.Spec.HealthCheckNodePort {
		return nil
	}
	wanted := s.Spec.HealthCheckNodePort
	err := a.ports.try(ctx, dryRun, func(b *bitmap) error {
		if wanted != 0 {
			return b.set(wanted)
		}
		port, err := b.setAny()
		s.Spec.HealthCheckNodePort = port
		return err
	})
	switch {
	case err != nil && wanted != 0:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", wanted, err))
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", s.Spec.HealthCheckNodePort, err))
	}
	a.undoPorts(ctx, t, s, []int32{s.Spec.HealthCheckNodePort}, dryRun)
	return nil
}
