package admission

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	_ "github.com/coracle-io/coracle/internal/bubble"
)

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
}

func TestServiceAccount(t *testing.T) {
	p := newServiceAccount(config(objectstest.NewMemory().Put(objects.ServiceAccounts, account("default"))))
	got := pod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "own", VolumeMounts: []corev1.VolumeMount{{Name: "x", MountPath: tokenMountPath}}}}
	})
	if err := run(t, p, write{kind: "Pod", resource: "pods", obj: got}); err != "" {
		t.Fatal(err)
	}
	if got.Spec.ServiceAccountName != "default" || got.Spec.DeprecatedServiceAccount != "default" || len(got.Spec.ImagePullSecrets) != 1 {
		t.Errorf("%+v", got.Spec)
	}
	if len(got.Spec.Volumes) != 1 || !strings.HasPrefix(got.Spec.Volumes[0].Name, "kube-api-access-") || len(got.Spec.Volumes[0].Name) != len("kube-api-access-")+5 {
		t.Fatalf("%+v", got.Spec.Volumes)
	}
	want := []corev1.VolumeMount{{Name: got.Spec.Volumes[0].Name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	if diff := cmp.Diff(want, got.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Error(diff)
	}
	if len(got.Spec.InitContainers[0].VolumeMounts) != 1 {
		t.Error("a container with a mount of its own in that place got another")
	}
	projected := got.Spec.Volumes[0].Projected
	if *projected.DefaultMode != 0o644 || *projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 || projected.Sources[1].ConfigMap.Name != "kube-root-ca.crt" {
		t.Errorf("%+v", projected)
	}

	for name, test := range map[string]struct {
		change  func(*corev1.Pod)
		volumes int
		want    string
	}{
		"opted out": {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) }, 0, ""},
		"missing account": {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 0,
			`pods "p" is forbidden: error looking up service account web/none: serviceaccount "none" not found`},
		"mirror pod": {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, 0, ""},
		"mirror pod with account": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			p.Spec.ServiceAccountName = "default"
		}, 0, `pods "p" is forbidden: a mirror pod may not reference service accounts`},
		"mirror pod with secret": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}}
		}, 0, `pods "p" is forbidden: a mirror pod may not reference secrets`},
	} {
		t.Run(name, func(t *testing.T) {
			o := pod(test.change)
			if got := run(t, p, write{kind: "Pod", resource: "pods", obj: o}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if len(o.Spec.Volumes) != test.volumes {
				t.Errorf("volumes %v", o.Spec.Volumes)
			}
		})
	}
}

func TestServiceAccountRestrictsSecrets(t *testing.T) {
	strict := account("default")
	strict.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
	strict.Secrets = []corev1.ObjectReference{{Name: "known"}}
	p := newServiceAccount(config(objectstest.NewMemory().Put(objects.ServiceAccounts, strict)))
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	env := func(secret string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(secret)}}}}
	}
	from := func(secret string) []corev1.EnvFromSource {
		r := ref(secret)
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: r}}}
	}
	for name, test := range map[string]struct {
		change   func(*corev1.PodSpec)
		op       admission.Operation
		resource string
		want     string
	}{
		"what it lists": {change: func(s *corev1.PodSpec) {
			s.Containers[0].Env, s.Containers[0].EnvFrom, s.ImagePullSecrets = env("known"), from("known"), []corev1.LocalObjectReference{ref("pull")}
		}},
		"volume": {change: func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}}}
		}, want: `volume with secret.secretName="x" is not allowed because service account default does not reference that secret`},
		"environment of an init container": {change: func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", Env: env("x")}}
		}, want: `init container i with envVar E referencing secret.secretName="x" is not allowed because service account default does not reference that secret`},
		"environment": {change: func(s *corev1.PodSpec) {
			s.Containers = []corev1.Container{{Name: "c", EnvFrom: from("x")}}
		}, want: `container c with envFrom referencing secret.secretName="x" is not allowed because service account default does not reference that secret`},
		"pull": {change: func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []corev1.LocalObjectReference{ref("pull"), ref("known")}
		}, want: `imagePullSecrets[1].name="known" is not allowed because service account default does not reference that imagePullSecret`},
		"ephemeral container": {change: func(s *corev1.PodSpec) {
			s.ServiceAccountName = "default"
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Env: env("x")}}}
		}, op: admission.Update, resource: "pods/ephemeralcontainers",
			want: `ephemeral container e with envVar E referencing secret.secretName="x" is not allowed because service account default does not reference that secret`},
		"update": {change: func(s *corev1.PodSpec) { s.Containers[0].Env = env("x") }, op: admission.Update},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if want != "" {
				want = `pods "p" is forbidden: ` + want
			}
			if test.resource == "" {
				test.resource = "pods"
			}
			o := pod(func(p *corev1.Pod) { test.change(&p.Spec) })
			if got := run(t, p, write{kind: "Pod", resource: test.resource, obj: o, op: test.op}); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestWaitForDefaultServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := objectstest.NewMemory()
		p := newServiceAccount(config(m))
		go func() {
			time.Sleep(300 * time.Millisecond)
			m.Put(objects.ServiceAccounts, account("default"))
		}()
		if got := run(t, p, write{kind: "Pod", resource: "pods", obj: pod(nil)}); got != "" {
			t.Error(got)
		}
		m.Delete(objects.ServiceAccounts, "web", "default")
		start := time.Now()
		if got := run(t, p, write{kind: "Pod", resource: "pods", obj: pod(nil)}); !strings.Contains(got, `serviceaccount "default" not found`) {
			t.Error(got)
		}
		if waited := time.Since(start); waited > 2*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestPriority(t *testing.T) {
	class := func(name string, value int32, global bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: global, PreemptionPolicy: ptr.To(corev1.PreemptNever)}
	}
	m := objectstest.NewMemory().Put(objects.PriorityClasses, class("high", 1000, false))
	p := newPriority(config(m))
	for name, test := range map[string]struct {
		change   func(*corev1.Pod)
		priority int32
		policy   corev1.PreemptionPolicy
		want     string
	}{
		"none":    {func(*corev1.Pod) {}, 0, corev1.PreemptLowerPriority, ""},
		"class":   {func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }, 1000, corev1.PreemptNever, ""},
		"missing": {func(p *corev1.Pod) { p.Spec.PriorityClassName = "low" }, 0, "", `pods "p" is forbidden: no PriorityClass with name low was found`},
		"number": {func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](5) }, 5, "",
			`pods "p" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`},
		"policy": {func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }, 0, "",
			`pods "p" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name`},
	} {
		t.Run(name, func(t *testing.T) {
			o := pod(test.change)
			if got := run(t, p, write{kind: "Pod", resource: "pods", obj: o}); got != test.want {
				t.Fatalf("%q, want %q", got, test.want)
			}
			if test.want == "" && (*o.Spec.Priority != test.priority || *o.Spec.PreemptionPolicy != test.policy) {
				t.Errorf("%d, %s", *o.Spec.Priority, *o.Spec.PreemptionPolicy)
			}
		})
	}
	m.Put(objects.PriorityClasses, class("all", 7, true))
	o := pod(nil)
	if got := run(t, p, write{kind: "Pod", resource: "pods", obj: o}); got != "" || o.Spec.PriorityClassName != "all" || *o.Spec.Priority != 7 {
		t.Errorf("%s %+v", got, o.Spec)
	}
	want := `priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass all is already marked as default. Only one default can exist`
	if got := run(t, p, write{kind: "PriorityClass", resource: "scheduling.k8s.io/priorityclasses", obj: class("second", 1, true)}); got != want {
		t.Error(got)
	}
}

func TestTolerationsAndTaints(t *testing.T) {
	o := pod(func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists}}
	})
	c := config(objectstest.NewMemory())
	run(t, newDefaultTolerationSeconds(c), write{kind: "Pod", resource: "pods", obj: o})
	if len(o.Spec.Tolerations) != 2 || o.Spec.Tolerations[1].Key != corev1.TaintNodeNotReady || *o.Spec.Tolerations[1].TolerationSeconds != 300 {
		t.Errorf("%+v", o.Spec.Tolerations)
	}
	c.NotReadySeconds, c.UnreachableSeconds = new(int64(30)), new(int64(0))
	shorter := pod(nil)
	run(t, newDefaultTolerationSeconds(c), write{kind: "Pod", resource: "pods", obj: shorter})
	if got := shorter.Spec.Tolerations; len(got) != 2 || *got[0].TolerationSeconds != 30 || *got[1].TolerationSeconds != 0 {
		t.Errorf("%+v", got)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for range 2 {
		run(t, taintNodesByCondition{}, write{kind: "Node", resource: "nodes", obj: n})
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "node.kubernetes.io/not-ready" || n.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("%+v", n.Spec.Taints)
	}
	x := pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1"), "cpu": resource.MustParse("1")}
	})
	run(t, extendedResourceToleration{}, write{kind: "Pod", resource: "pods", obj: x})
	if len(x.Spec.Tolerations) != 1 || x.Spec.Tolerations[0].Key != "example.com/gpu" {
		t.Errorf("%+v", x.Spec.Tolerations)
	}
}

func TestPodSecurity(t *testing.T) {
	p := newPodSecurity(config(objectstest.NewMemory().Put(objects.Namespaces,
		namespace("web", corev1.NamespaceActive, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}),
		namespace("free", corev1.NamespaceActive, nil))))
	privileged := func(ns string) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Namespace, p.Spec.HostNetwork = ns, true })
	}
	want := `pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	if got := run(t, p, write{kind: "Pod", resource: "pods", obj: privileged("web")}); got != want {
		t.Error(got)
	}
	if got := run(t, p, write{kind: "Pod", resource: "pods", obj: privileged("free")}); got != "" {
		t.Error(got)
	}
	// What becomes a rule or a mount of the machine.
	for part, change := range map[string]func(*corev1.PodSpec){
		"hostPort": func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		},
		"hostPath": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}}
		},
		"probe or lifecycle host": func(s *corev1.PodSpec) {
			s.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "192.0.2.1"}}}
		},
		"privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
	} {
		refused := pod(func(p *corev1.Pod) {
			p.Namespace = "web"
			p.Spec.Containers = []corev1.Container{{Name: "c"}}
			change(&p.Spec)
		})
		if got := run(t, p, write{kind: "Pod", resource: "pods", obj: refused}); !strings.Contains(got, part) {
			t.Errorf("%s: %q", part, got)
		}
	}
	if got := run(t, p, write{kind: "Pod", resource: "pods", obj: pod(nil)}); got != "" {
		t.Error(got)
	}
}

// TestPodResize checks that a pod cannot grow beyond its node, and only on Linux.
func TestPodResize(t *testing.T) {
	node := func(name, system string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: system}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}},
		}
	}
	unlabelled := node("fake", "")
	unlabelled.Labels = nil
	p := newPodResizeValidator(config(objectstest.NewMemory().Put(objects.Nodes, node("one", "linux"), node("two", "windows"), unlabelled)))
	resized := func(node string, generation int64, cpu, memory string) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.Generation = node, generation
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
		})
	}
	for name, test := range map[string]struct {
		resource string
		obj      *corev1.Pod
		want     string
		cause    metav1.CauseType
	}{
		"all of the node": {"pods/resize", resized("one", 2, "2", "1Gi"), "", ""},
		"too much": {"pods/resize", resized("one", 2, "3", "2Gi"),
			`pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824`, "NodeCapacity"},
		// Thousandths of so many CPUs are more than 64 bits hold. Upstream shows 0, too.
		"far too much": {"pods/resize", resized("one", 2, "10P", "1Gi"),
			`pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 0, allocatable: 2000`, "NodeCapacity"},
		"a node without labels": {"pods/resize", resized("fake", 2, "2", "1Gi"), "", ""},
		"other system":          {"pods/resize", resized("two", 2, "3", "1Gi"), `pods "p" is forbidden: pod resize is only supported on linux nodes, node "two" is "windows"`, "UnsupportedPlatform"},
		"no node":               {"pods/resize", resized("", 2, "3", "1Gi"), "", ""},
		"unknown node":          {"pods/resize", resized("three", 2, "1", "1Gi"), `pods "p" is forbidden: node "three" not found`, ""},
		"no change":             {"pods/resize", resized("two", 1, "3", "1Gi"), "", ""},
		"another subresource":   {"pods", resized("one", 2, "3", "1Gi"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{op: admission.Update, kind: "Pod", resource: test.resource, obj: test.obj, old: resized(test.obj.Spec.NodeName, 1, "1", "1Gi")}
			if got := run(t, p, w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if test.cause == "" {
				return
			}
			err := p.(admission.ValidationInterface).Validate(t.Context(), w.attributes(), nil)
			if !apierrors.HasStatusCause(err, test.cause) {
				t.Errorf("%#v does not have the cause %s", err, test.cause)
			}
		})
	}
}

// A pod is not changed in a way that its node cannot do.
func TestNodeDeclaredFeatures(t *testing.T) {
	node := func(name string, features ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{DeclaredFeatures: features}}
	}
	p := newNodeDeclaredFeatureValidator(config(objectstest.NewMemory().Put(objects.Nodes,
		node("new", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"), node("old"))))
	on := func(node string, generation int64, change func(*corev1.PodSpec)) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.Generation = node, generation
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
			change(&p.Spec)
		})
	}
	one := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	same := func(*corev1.PodSpec) {}
	whole := func(s *corev1.PodSpec) { s.Resources = &one }
	first := func(s *corev1.PodSpec) { s.InitContainers[0].Resources = one }
	plain := func(s *corev1.PodSpec) { s.Containers[0].Resources = one }
	for name, test := range map[string]struct {
		resource string
		obj      *corev1.Pod
		want     string
	}{
		"the pod's resources": {"pods/resize", on("new", 2, whole), ""},
		"the pod's resources, old node": {"pods/resize", on("old", 2, whole),
			`pods "p" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`},
		"an init container": {"pods/resize", on("new", 2, first), ""},
		"an init container, old node": {"pods", on("old", 2, first),
			`pods "p" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "old"`},
		"a container, old node":               {"pods/resize", on("old", 2, plain), ""},
		"nothing":                             {"pods/resize", on("old", 2, same), ""},
		"the same generation":                 {"pods/resize", on("old", 1, whole), ""},
		"no node":                             {"pods/resize", on("", 2, whole), ""},
		"unknown node":                        {"pods/resize", on("gone", 2, whole), `pods "p" is forbidden: node "gone" not found`},
		"another subresource on the old node": {"pods/status", on("old", 2, whole), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{op: admission.Update, kind: "Pod", resource: test.resource, obj: test.obj, old: on(test.obj.Spec.NodeName, 1, same)}
			if got := run(t, p, w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
