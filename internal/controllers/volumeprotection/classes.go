package volumeprotection

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/controller"
)

// Classes describes the controller that protects VolumeAttributesClasses that
// claims or volumes use or request (KEP-3751).
func Classes() controller.Descriptor {
	return controller.Descriptor{
		Name:           "volumeattributesclass-protection-controller",
		ServiceAccount: "volumeattributesclass-protection-controller",
		EventSource:    "volumeattributesclass-protection-controller",
		New:            newClasses,
	}
}

// newClasses builds the controller of VolumeAttributesClasses.
func newClasses(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	classes := env.Client.Informers.Storage().V1().VolumeAttributesClasses()
	claims, volumes := core.PersistentVolumeClaims(), core.PersistentVolumes()
	kube := env.Client.Kubernetes.StorageV1().VolumeAttributesClasses()
	queue := controller.NewQueue(env.Queues, "vacprotection", controller.Existing[string](classes.Informer(), func(ctx context.Context, class *storagev1.VolumeAttributesClass) error {
		name := class.Name
		inUse := func() (bool, error) {
			allClaims, err := claims.Lister().List(labels.Everything())
			if err != nil || slices.ContainsFunc(allClaims, func(c *v1.PersistentVolumeClaim) bool { return slices.Contains(classesOf(c), name) }) {
				return true, err
			}
			allVolumes, err := volumes.Lister().List(labels.Everything())
			return slices.ContainsFunc(allVolumes, func(v *v1.PersistentVolume) bool { return classOf(v) == name }), err
		}
		return protect(class, classFinalizer, inUse, func(finalizers []string) error {
			next := class.DeepCopy()
			next.Finalizers = finalizers
			_, err := kube.Update(ctx, next, metav1.UpdateOptions{})
			return err
		})
	}))
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{
			controller.On(classes.Informer(), func(_, class *storagev1.VolumeAttributesClass) {
				if class != nil {
					queue.Add(class.Name)
				}
			}),
			controller.On(claims.Informer(), func(old, new *v1.PersistentVolumeClaim) {
				for _, name := range classesOf(old) {
					if !slices.Contains(classesOf(new), name) {
						queue.Add(name)
					}
				}
			}),
			controller.On(volumes.Informer(), func(old, new *v1.PersistentVolume) {
				if name := classOf(old); name != "" && name != classOf(new) {
					queue.Add(name)
				}
			}),
		}, queue.Workers(1))
	}), nil
}

// classesOf returns the requested, current and target classes of a claim. It
// returns none for nil.
func classesOf(c *v1.PersistentVolumeClaim) (names []string) {
	if c == nil {
		return nil
	}
	add := func(name *string) {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	add(c.Spec.VolumeAttributesClassName)
	add(c.Status.CurrentVolumeAttributesClassName)
	if s := c.Status.ModifyVolumeStatus; s != nil {
		add(&s.TargetVolumeAttributesClassName)
	}
	return names
}

// classOf returns the class of a volume, or "" if it has none or is nil.
func classOf(v *v1.PersistentVolume) string {
	if v == nil || v.Spec.VolumeAttributesClassName == nil {
		return ""
	}
	return *v.Spec.VolumeAttributesClassName
}
