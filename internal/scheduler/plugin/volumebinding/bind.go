package volumebinding

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/supervise"
)

// The binder controller mostly needs milliseconds, a provisioner minutes.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// assumed holds changes of objects that were decided but not yet seen in the
// informer. A change holds for one version of an object: any newer one, be it
// the change itself or another's, takes its place.
type assumed[T metav1.Object] struct {
	mu      sync.Mutex
	objects map[string]T // by "namespace/name"
}

// latest returns an object of the informer as it was assumed to be.
func (a *assumed[T]) latest(obj T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed, ok := a.objects[key(obj)]
	if !ok {
		return obj
	}
	if changed.GetResourceVersion() == obj.GetResourceVersion() && changed.GetUID() == obj.GetUID() {
		return changed
	}
	delete(a.objects, key(obj))
	return obj
}

func (a *assumed[T]) assume(obj T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects == nil {
		a.objects = map[string]T{}
	}
	a.objects[key(obj)] = obj
}

func (a *assumed[T]) forget(obj T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, key(obj))
}

func key(obj metav1.Object) string { return cache.MetaObjectToName(obj).String() }

// assume decides the bindings and the node of provisioning, in place.
func (p *plugin) assume(volumes *podVolumes, node string) error {
	for _, b := range volumes.bindings {
		changed, dirty, err := volume.GetBindVolumeToClaim(b.volume, b.claim)
		if err != nil {
			return err
		}
		if dirty {
			b.volume = changed
			p.assumedVolumes.assume(changed)
		}
	}
	for _, v := range volumes.provisions {
		v.claim = v.claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&v.claim.ObjectMeta, volume.AnnSelectedNode, node)
		p.assumedClaims.assume(v.claim)
	}
	return nil
}

// forget takes back what was assumed. It does not change objects in the API.
func (p *plugin) forget(volumes *podVolumes) {
	for _, b := range volumes.bindings {
		p.assumedVolumes.forget(b.volume)
	}
	for _, v := range volumes.provisions {
		p.assumedClaims.forget(v.claim)
	}
}

// bind writes what was assumed, and waits until the claims are bound.
func (p *plugin) bind(ctx context.Context, pod *v1.Pod, node string, volumes *podVolumes) error {
	for _, b := range volumes.bindings {
		if err := p.writeVolume(ctx, b); err != nil {
			return err
		}
	}
	for _, v := range volumes.provisions {
		if err := p.writeClaim(ctx, v, node); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := p.isDone(pod, node, volumes)
		if err != nil {
			return fmt.Errorf("binding volumes: %w", err)
		}
		if done {
			return nil
		}
		if !supervise.Pause(ctx, pause) {
			return fmt.Errorf("binding volumes: %w", ctx.Err())
		}
	}
}

// writeVolume writes the claimRef. Another pod with the same claim may have
// been faster.
func (p *plugin) writeVolume(ctx context.Context, b *binding) error {
	volumes := p.api.CoreV1().PersistentVolumes()
	updated, err := volumes.Update(ctx, b.volume, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		current, getErr := volumes.Get(ctx, b.volume.Name, metav1.GetOptions{})
		if getErr == nil && current.Spec.ClaimRef != nil && current.Spec.ClaimRef.UID == b.claim.UID {
			updated, err = current, nil
		}
	}
	if err == nil {
		b.volume = updated
	}
	return err
}

// writeClaim writes the selected node, likewise.
func (p *plugin) writeClaim(ctx context.Context, v *provision, node string) error {
	claims := p.api.CoreV1().PersistentVolumeClaims(v.claim.Namespace)
	updated, err := claims.Update(ctx, v.claim, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		current, getErr := claims.Get(ctx, v.claim.Name, metav1.GetOptions{})
		if getErr == nil && current.UID == v.claim.UID && current.Annotations[volume.AnnSelectedNode] == node {
			updated, err = current, nil
		}
	}
	if err == nil {
		v.claim = updated
	}
	return err
}

// isDone reports whether all claims are bound. The error says why they will not
// be, so that the pod is scheduled anew.
func (p *plugin) isDone(pod *v1.Pod, name string, volumes *podVolumes) (bool, error) {
	if p.isWanted != nil && !p.isWanted(pod.UID) {
		return false, fmt.Errorf("pod does not exist any more: pod %q not found", pod.Name)
	}
	node, err := p.nodes.Get(name)
	if err != nil {
		return false, fmt.Errorf("failed to get node %q: %w", name, err)
	}
	for _, b := range volumes.bindings {
		if done, err := p.isBindingDone(b, node); !done || err != nil {
			return false, err
		}
	}
	for _, v := range volumes.provisions {
		if done, err := p.isProvisionDone(v, node); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (p *plugin) isBindingDone(b *binding, node *v1.Node) (bool, error) {
	pv, err := p.volumes.Get(b.volume.Name)
	if err != nil {
		return false, fmt.Errorf("failed to check binding: %w", err)
	}
	claim, err := p.claims.PersistentVolumeClaims(b.claim.Namespace).Get(b.claim.Name)
	if err != nil {
		return false, fmt.Errorf("failed to check binding: %w", err)
	}
	if isOlder(pv, b.volume) {
		return false, nil
	}
	if err := p.checkNodeAffinity(pv, node); err != nil {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", pv.Name, node.Name, err)
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "" {
		return false, fmt.Errorf("ClaimRef got reset for pv %q", pv.Name)
	}
	return isBound(claim), nil
}

func (p *plugin) isProvisionDone(v *provision, node *v1.Node) (bool, error) {
	claim, err := p.claims.PersistentVolumeClaims(v.claim.Namespace).Get(v.claim.Name)
	if err != nil {
		return false, fmt.Errorf("failed to check provisioning pvc: %w", err)
	}
	if isOlder(claim, v.claim) {
		return false, nil
	}
	switch selected := claim.Annotations[volume.AnnSelectedNode]; {
	case claim.Annotations == nil:
		return false, fmt.Errorf("selectedNode annotation reset for PVC %q", claim.Name)
	case selected != node.Name: // the provisioner gave up and asks for another node
		return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
	}
	if claim.Spec.VolumeName != "" {
		pv, err := p.volumes.Get(claim.Spec.VolumeName)
		if apierrors.IsNotFound(err) { // the informer of volumes may be behind the informer of claims
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("failed to get pv %q from cache: %w", claim.Spec.VolumeName, err)
		}
		if err := p.checkNodeAffinity(pv, node); err != nil {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", pv.Name, node.Name, err)
		}
	}
	return isBound(claim), nil
}

// isOlder reports whether the informer has not seen yet what was written.
func isOlder(seen, written metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), written.GetResourceVersion())
	return err == nil && order < 0
}
