package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func TestUpstreamAnswers(t *testing.T) {
	resourcetest.Replay(t, core.Resources(), "testdata/known-differences.txt", admit)
}

// admit does what upstream's admission plugins did to the recorded objects:
// service account, priority, default tolerations and address families.
func admit(_ *resource.RequestContext, obj, old resource.Object) error {
	switch o := obj.(type) {
	case *corev1.Service:
		oldService, _ := old.(*corev1.Service)
		if old == nil && o.Spec.ClusterIP != "" && len(o.Spec.ClusterIPs) == 0 { // as PrepareForCreate does, before addresses are allocated
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		core.AssignServiceFamilies(o, oldService, []corev1.IPFamily{corev1.IPv4Protocol}) // validation finds what is wrong
	case *corev1.Node:
		if old == nil {
			o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
		}
	case *corev1.PersistentVolume:
		if old == nil {
			o.Finalizers = append(o.Finalizers, "kubernetes.io/pv-protection")
		}
	case *corev1.PersistentVolumeClaim:
		if old == nil {
			o.Finalizers = append(o.Finalizers, "kubernetes.io/pvc-protection")
		}
	case *corev1.Pod:
		if old == nil {
			return admitPod(o)
		}
		if o.Spec.Priority == nil {
			o.Spec.Priority = old.(*corev1.Pod).Spec.Priority
		}
		tolerateUnready(o)
	}
	return nil
}

func admitPod(p *corev1.Pod) error {
	spec := &p.Spec
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = "default"
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	if spec.ServiceAccountName != "default" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, nil)
	}
	mountToken(spec)
	priority := int32(0)
	switch spec.PriorityClassName {
	case "":
	case "system-node-critical":
		priority = 2000001000
	case "system-cluster-critical":
		priority = 2000000000
	default:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, nil)
	}
	if spec.Priority != nil && *spec.Priority != priority {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, nil)
	}
	spec.Priority = &priority
	if spec.PreemptionPolicy == nil {
		policy := corev1.PreemptLowerPriority
		spec.PreemptionPolicy = &policy
	}
	tolerateUnready(p)
	return nil
}

func mountToken(spec *corev1.PodSpec) {
	const name, where = "kube-api-access-x7k2p", "/var/run/secrets/kubernetes.io/serviceaccount"
	if spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken {
		return
	}
	needed := false
	for c := range podquery.Containers(spec) {
		mounted := false
		for _, m := range c.VolumeMounts {
			mounted = mounted || m.MountPath == where
		}
		if !mounted {
			needed = true
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: where})
		}
	}
	if !needed {
		return
	}
	mode, seconds := int32(0o644), int64(3607)
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		}},
	}})
}

func tolerateUnready(p *corev1.Pod) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := false
		for _, t := range p.Spec.Tolerations {
			if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
				tolerated = true
			}
		}
		if !tolerated {
			seconds := int64(300)
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
	}
}
