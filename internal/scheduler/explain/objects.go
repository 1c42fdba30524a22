package explain

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/scheduling"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// lookedAt are the resources of a file that plugins look at, beside its pods.
func lookedAt() []*resource.Resource {
	return []*resource.Resource{
		volume.PersistentVolumeClaims(), volume.PersistentVolumes(), storage.StorageClasses(), storage.CSIStorageCapacities(),
		dynamicresources.ResourceClaims(), dynamicresources.ResourceClaimTemplates(), dynamicresources.DeviceClasses(), dynamicresources.ResourceSlices(),
		scheduling.PodGroups(),
	}
}

// addObject completes an object as the API server would, and adds it.
func (a *Admission) addObject(m *Manifest, object runtime.Object) {
	for _, r := range lookedAt() {
		for i := range r.Versions {
			v := &r.Versions[i]
			if reflect.TypeOf(v.New()) != reflect.TypeOf(object) {
				continue
			}
			o := object.DeepCopyObject().(resource.Object)
			v.Default(o)
			o = v.ToHub(o)
			if r.Namespaced {
				o.SetNamespace(cmp.Or(o.GetNamespace(), a.Namespace))
			}
			if o.GetUID() == "" {
				o.SetUID(types.UID(fmt.Sprintf("dry-run-object-%d", len(m.Objects))))
			}
			switch o := o.(type) {
			case *resourcev1.ResourceClaimTemplate:
				m.Templates[o.Namespace+"/"+o.Name] = o
				return
			case *v1.PersistentVolume:
				o.Status.Phase = v1.VolumeAvailable // as the binder controller makes it
			}
			m.Objects = append(m.Objects, o)
			return
		}
	}
}

// adopt adds the objects of a manifest to what plugins look at, and makes the
// claims that controllers would make for its pods. Objects that the cluster has
// already are not replaced.
func (e *Explainer) adopt(ctx context.Context, kube kubernetes.Interface, m *Manifest) error {
	if m.Templates == nil {
		m.Templates = map[string]*resourcev1.ResourceClaimTemplate{}
	}
	for _, object := range m.Objects {
		if claim, ok := object.(*v1.PersistentVolumeClaim); ok {
			e.setClass(claim, m)
		}
		if err := e.informers.Add(object); err != nil {
			return err
		}
	}
	for _, pod := range m.Pods {
		for i := range pod.Spec.Volumes {
			source := pod.Spec.Volumes[i].Ephemeral
			if source == nil || source.VolumeClaimTemplate == nil {
				continue
			}
			claim := &v1.PersistentVolumeClaim{ObjectMeta: madeFor(pod, ephemeral.VolumeClaimName(pod, &pod.Spec.Volumes[i])), Spec: source.VolumeClaimTemplate.Spec}
			e.setClass(claim, m)
			if err := e.informers.Add(claim); err != nil {
				return err
			}
		}
		for i := range pod.Spec.ResourceClaims {
			if err := e.makeClaim(ctx, kube, m, pod, &pod.Spec.ResourceClaims[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeClaim makes the ResourceClaim of a template for a pod, if there is the
// template.
func (e *Explainer) makeClaim(ctx context.Context, kube kubernetes.Interface, m *Manifest, pod *v1.Pod, c *v1.PodResourceClaim) error {
	if c.ResourceClaimTemplateName == nil {
		return nil
	}
	key := pod.Namespace + "/" + *c.ResourceClaimTemplateName
	template := m.Templates[key]
	if template == nil {
		found, err := kube.ResourceV1().ResourceClaimTemplates(pod.Namespace).Get(ctx, *c.ResourceClaimTemplateName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err):
			e.Refused = append(e.Refused, err.Error())
			return nil
		case err != nil:
			return fmt.Errorf("reading ResourceClaimTemplate %s: %w", key, err)
		}
		m.Templates[key], template = found, found
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: madeFor(pod, pod.Name+"-"+c.Name), Spec: template.Spec.Spec}
	claim.Labels, claim.Annotations = template.Spec.Labels, template.Spec.Annotations
	pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: c.Name, ResourceClaimName: &claim.Name})
	return e.informers.Add(claim)
}

// madeFor is the metadata of a claim that a controller makes for a pod.
func madeFor(pod *v1.Pod, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: pod.Namespace, UID: types.UID("dry-run-" + string(pod.UID) + "-" + name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))},
	}
}

// setClass gives a claim without a class the default one.
func (e *Explainer) setClass(claim *v1.PersistentVolumeClaim, m *Manifest) {
	if claim.Spec.StorageClassName != nil {
		return
	}
	classes, err := e.informers.Storage().V1().StorageClasses().Lister().List(labels.Everything())
	if err != nil {
		return
	}
	for _, object := range m.Objects {
		if class, ok := object.(*storagev1.StorageClass); ok {
			classes = append(classes, class)
		}
	}
	if class := defaultclass.Storage(slices.Values(classes)); class != nil {
		claim.Spec.StorageClassName = new(class.Name)
	}
}
