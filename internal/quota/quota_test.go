package quota_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/quota"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func pod(requests, limits corev1.ResourceList, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
	}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestUsage(t *testing.T) {
	deletedAgo := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp = new(metav1.NewTime(now.Add(-ago)))
			p.DeletionGracePeriodSeconds = new(int64(30))
		}
	}
	// The pod a requests two devices by the name of the resource, one by that of the class.
	claimFor := func(name, uid string, devices int64) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: name, Annotations: map[string]string{"resource.kubernetes.io/extended-resource-claim": "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: types.UID(uid), Controller: new(true)}},
			},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: devices}},
			}}},
		}
	}
	find := quota.Lookup{
		Class: func(name string) (*resourcev1.DeviceClass, bool) {
			return &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}, name == "gpu"
		},
		Pod: func(namespace, name string) (*corev1.Pod, bool) {
			return pod(list("example.com/gpu", "2", "deviceclass.resource.kubernetes.io/gpu", "1"), nil, func(p *corev1.Pod) {
				p.UID = "a"
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpus"}
			}), namespace == "web" && name == "a"
		},
	}
	for name, test := range map[string]struct {
		of   schema.GroupResource
		obj  any
		want corev1.ResourceList
	}{
		"a pod that asks for nothing": {quota.Pods, pod(nil, nil), list("count/pods", "1", "pods", "1")},
		"a pod": {quota.Pods, pod(list("cpu", "100m", "ephemeral-storage", "1Gi", "example.com/gpu", "2", "hugepages-2Mi", "4Mi"), list("memory", "64Mi")), list(
			"count/pods", "1", "pods", "1", "cpu", "100m", "requests.cpu", "100m", "ephemeral-storage", "1Gi", "requests.ephemeral-storage", "1Gi",
			"requests.example.com/gpu", "2", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "limits.memory", "64Mi")},
		"a device of a class": {quota.Pods, pod(list("deviceclass.resource.kubernetes.io/gpu", "2"), nil),
			list("count/pods", "1", "pods", "1", "requests.deviceclass.resource.kubernetes.io/gpu", "2")},
		"a pod that shrinks": {quota.Pods, pod(list("cpu", "100m", "memory", "200Mi"), list("memory", "400Mi"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &corev1.ResourceRequirements{
				Requests: list("cpu", "150m", "memory", "150Mi"), Limits: list("memory", "500Mi"),
			}}}
		}), list("count/pods", "1", "pods", "1", "cpu", "150m", "requests.cpu", "150m", "memory", "200Mi", "requests.memory", "200Mi", "limits.memory", "500Mi")},
		"a pod that has ended":      {quota.Pods, pod(list("cpu", "1"), nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), list("count/pods", "1")},
		"a pod that is being ended": {quota.Pods, pod(nil, nil, deletedAgo(10*time.Second)), list("count/pods", "1", "pods", "1")},
		"a pod whose node is lost":  {quota.Pods, pod(nil, nil, deletedAgo(time.Minute)), list("count/pods", "1")},
		"a cluster IP": {quota.Services, &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: make([]corev1.ServicePort, 2)}},
			list("count/services", "1", "services", "1", "services.nodeports", "0", "services.loadbalancers", "0")},
		"node ports": {quota.Services, &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, 2)}},
			list("count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "0")},
		"a load balancer without node ports": {quota.Services, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(false), Ports: []corev1.ServicePort{{Port: 1}, {Port: 2, NodePort: 30000}},
		}}, list("count/services", "1", "services", "1", "services.nodeports", "1", "services.loadbalancers", "1")},
		"a claim that has grown": {quota.Claims, &corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: new("gold"), Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")}},
			Status: corev1.PersistentVolumeClaimStatus{AllocatedResources: list("storage", "2Gi")},
		}, list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "2Gi",
			"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "2Gi")},
		"devices": {quota.ResourceClaims, &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 2}},
			{FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu", Count: 1}, {DeviceClassName: "gpu", Count: 4}, {DeviceClassName: "nic", AllocationMode: resourcev1.DeviceAllocationModeAll}}},
		}}}}, list("count/resourceclaims.resource.k8s.io", "1", "gpu.deviceclass.resource.k8s.io/devices", "6", "nic.deviceclass.resource.k8s.io/devices", "32",
			"requests.deviceclass.resource.kubernetes.io/gpu", "6", "requests.example.com/gpu", "6", "requests.deviceclass.resource.kubernetes.io/nic", "32")},
		"devices of a pod by both names": {quota.ResourceClaims, claimFor("gpus", "a", 3), list("count/resourceclaims.resource.k8s.io", "1",
			"gpu.deviceclass.resource.k8s.io/devices", "3", "requests.deviceclass.resource.kubernetes.io/gpu", "2", "requests.example.com/gpu", "1")},
		"devices of a pod that is not known": {quota.ResourceClaims, claimFor("gpus", "b", 3), list("count/resourceclaims.resource.k8s.io", "1",
			"gpu.deviceclass.resource.k8s.io/devices", "3", "requests.deviceclass.resource.kubernetes.io/gpu", "3", "requests.example.com/gpu", "3")},
		"devices of a pod with another claim for them": {quota.ResourceClaims, claimFor("more", "a", 1), list("count/resourceclaims.resource.k8s.io", "1",
			"gpu.deviceclass.resource.k8s.io/devices", "1", "requests.deviceclass.resource.kubernetes.io/gpu", "1", "requests.example.com/gpu", "1")},
		"anything":                          {schema.GroupResource{Group: "example.com", Resource: "boats"}, &metav1.PartialObjectMetadata{}, list("count/boats.example.com", "1")},
		"a namesake of a built-in resource": {schema.GroupResource{Group: "example.com", Resource: "secrets"}, &metav1.PartialObjectMetadata{}, list("count/secrets.example.com", "1")},
	} {
		if got := quota.Usage(test.of, test.obj, now, find); !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// What a pod as a whole has counts as far as the feature gates have it.
func TestUsageOfPodLevelResources(t *testing.T) {
	shrinks := pod(list("cpu", "100m"), nil, func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1")}
		p.Status.AllocatedResources = list("cpu", "2")
		p.Status.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "3")}
	})
	for _, test := range []struct{ gates, want string }{
		{"", "3"},
		{"InPlacePodLevelResourcesVerticalScaling=false", "1"},
		{"PodLevelResources=false,PodLevelResourcesFixDefaulting=false,PodLevelResourcesFixKubeletQOSClass=false,InPlacePodLevelResourcesVerticalScaling=false", "100m"},
	} {
		features, err := feature.Parse(strings.Split(test.gates, ","))
		if err != nil {
			t.Fatal(err)
		}
		used := quota.Usage(quota.Pods, shrinks, now, quota.Lookup{Features: features})
		if got := used[corev1.ResourceRequestsCPU]; got.Cmp(resource.MustParse(test.want)) != 0 {
			t.Errorf("%q: %s, want %s", test.gates, got.String(), test.want)
		}
	}
}

func TestTracked(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{
		"pods": "pods", "cpu": "pods", "requests.memory": "pods", "limits.ephemeral-storage": "pods", "hugepages-2Mi": "pods",
		"requests.hugepages-2Mi": "pods", "count/pods": "pods",
		"requests.example.com/gpu": "pods resourceclaims.resource.k8s.io", "requests.deviceclass.resource.kubernetes.io/gpu": "pods resourceclaims.resource.k8s.io",
		"services": "services", "services.nodeports": "services", "services.loadbalancers": "services",
		"requests.storage": "persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage": "persistentvolumeclaims",
		"gpu.deviceclass.resource.k8s.io/devices": "resourceclaims.resource.k8s.io",
		"secrets": "secrets", "count/replicasets.apps": "replicasets.apps", "count/boats.example.com": "boats.example.com",
		"example.com/gpu": "", "limits.hugepages-2Mi": "", "count/": "",
	} {
		var got []string
		for _, gr := range quota.Tracked(name) {
			got = append(got, gr.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %q", name, got, want)
		}
	}
}

func TestSelects(t *testing.T) {
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) }
	class := func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"other"}}},
		}}
	}
	whole := func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1")} }
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: new("fast")}}
	for name, test := range map[string]struct {
		scope    corev1.ResourceQuotaScope
		operator corev1.ScopeSelectorOperator
		values   []string
		obj      any
		want     bool
	}{
		"a deadline terminates":                 {"Terminating", "Exists", nil, pod(nil, nil, deadline), true},
		"without one not":                       {"NotTerminating", "Exists", nil, pod(nil, nil), true},
		"a deadline is not NotTerminating":      {"NotTerminating", "Exists", nil, pod(nil, nil, deadline), false},
		"nothing stated is best effort":         {"BestEffort", "Exists", nil, pod(nil, nil), true},
		"other resources do not matter":         {"BestEffort", "Exists", nil, pod(list("example.com/gpu", "1"), nil), true},
		"a limit is not best effort":            {"NotBestEffort", "Exists", nil, pod(nil, list("memory", "1")), true},
		"the pod's own requests count":          {"BestEffort", "Exists", nil, pod(nil, nil, whole), false},
		"another namespace":                     {"CrossNamespacePodAffinity", "Exists", nil, pod(nil, nil, apart), true},
		"no affinity":                           {"CrossNamespacePodAffinity", "Exists", nil, pod(nil, nil), false},
		"in a class":                            {"PriorityClass", "In", []string{"high"}, pod(nil, nil, class), true},
		"not in a class":                        {"PriorityClass", "NotIn", []string{"high"}, pod(nil, nil, class), false},
		"no class is in none":                   {"PriorityClass", "NotIn", []string{"high"}, pod(nil, nil), true},
		"any class":                             {"PriorityClass", "Exists", nil, pod(nil, nil, class), true},
		"no class":                              {"PriorityClass", "DoesNotExist", nil, pod(nil, nil), true},
		"a claim's attributes":                  {"VolumeAttributesClass", "In", []string{"fast"}, claim, true},
		"another claim's attributes":            {"VolumeAttributesClass", "In", []string{"slow"}, claim, false},
		"claims have no deadline":               {"NotTerminating", "Exists", nil, claim, false},
		"what scopes say nothing about is none": {"BestEffort", "Exists", nil, &corev1.Secret{}, false},
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: test.scope, Operator: test.operator, Values: test.values},
		}}}}
		if got := quota.Selects(q, test.obj); got != test.want || !quota.Scoped(q) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !quota.Selects(&corev1.ResourceQuota{}, &corev1.Secret{}) {
		t.Error("a quota without scopes selects everything")
	}
}
