package explain

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	podresource "github.com/coracle-io/coracle/internal/resource/core/pod"
)

const (
	// MaxManifest bounds the files of manifests together, in bytes.
	MaxManifest = 64 << 20
	// maxPods bounds the pods of a dry run.
	maxPods = 10_000
)

// Decode reads the objects of a manifest: YAML documents or JSON, or lists of
// them. Objects of kinds that are not built in are left out.
func Decode(data []byte) (objects []runtime.Object, err error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		var raw runtime.RawExtension
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if raw.Raw = bytes.TrimSpace(raw.Raw); len(raw.Raw) == 0 || bytes.Equal(raw.Raw, []byte("null")) {
			continue
		}
		decoded, err := decode(decoder, raw.Raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		objects = append(objects, decoded...)
	}
}

func decode(decoder runtime.Decoder, raw []byte) (objects []runtime.Object, err error) {
	object, _, err := decoder.Decode(raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, ok := object.(*v1.List)
	if !ok {
		return []runtime.Object{object}, nil
	}
	for i := range list.Items {
		items, err := decode(decoder, list.Items[i].Raw)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		objects = append(objects, items...)
	}
	return objects, nil
}

// Manifest holds the objects in the files of a dry run.
type Manifest struct {
	// Pods have defaults and are in the order in which the scheduler would take
	// them: pods in the files, and the pods that the replicas of workloads
	// would be.
	Pods []*v1.Pod
	// Objects are claims, volumes and classes that plugins look at.
	Objects []runtime.Object
	// Templates are by "namespace/name".
	Templates map[string]*resourcev1.ResourceClaimTemplate
}

// Manifest completes the objects of a manifest. Objects that the scheduler does
// not look at are left out.
func (a *Admission) Manifest(objects []runtime.Object) (*Manifest, error) {
	m := &Manifest{Templates: map[string]*resourcev1.ResourceClaimTemplate{}}
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			m.Pods = append(m.Pods, pod.DeepCopy())
			continue
		}
		a.addObject(m, object)
		w, err := workloadOf(object)
		if err != nil {
			return nil, err
		}
		if w == nil {
			continue
		}
		if int(w.replicas)+len(m.Pods) > maxPods {
			return nil, fmt.Errorf("%s %s: more than %d pods: dry runs take no more", w.kind, w.meta.Name, maxPods)
		}
		for i := range int(w.replicas) {
			pod := w.pod(i)
			m.Pods = append(m.Pods, pod)
			for i := range w.claims {
				a.addObject(m, claimOf(&w.claims[i], pod))
			}
		}
	}
	for i, pod := range m.Pods {
		if err := a.Admit(pod); err != nil {
			return nil, err
		}
		if pod.UID == "" {
			pod.UID = types.UID(fmt.Sprintf("dry-run-%d", i))
		}
	}
	slices.SortStableFunc(m.Pods, func(x, y *v1.Pod) int {
		return -cmp.Compare(ptr.Deref(x.Spec.Priority, 0), ptr.Deref(y.Spec.Priority, 0))
	})
	return m, nil
}

// workload is an object with a pod template.
type workload struct {
	kind     string
	meta     *metav1.ObjectMeta
	template *v1.PodTemplateSpec
	replicas int32
	start    int32                      // ordinal of the first pod
	claims   []v1.PersistentVolumeClaim // of a StatefulSet
}

// workloadOf returns nil for objects without pods.
func workloadOf(object runtime.Object) (w *workload, err error) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		w = &workload{kind: "Deployment", meta: &o.ObjectMeta, template: &o.Spec.Template, replicas: ptr.Deref(o.Spec.Replicas, 1)}
	case *appsv1.ReplicaSet:
		w = &workload{kind: "ReplicaSet", meta: &o.ObjectMeta, template: &o.Spec.Template, replicas: ptr.Deref(o.Spec.Replicas, 1)}
	case *appsv1.StatefulSet:
		w = &workload{kind: "StatefulSet", meta: &o.ObjectMeta, template: &o.Spec.Template, replicas: ptr.Deref(o.Spec.Replicas, 1), claims: o.Spec.VolumeClaimTemplates}
		if o.Spec.Ordinals != nil {
			w.start = o.Spec.Ordinals.Start
		}
	case *v1.ReplicationController:
		if o.Spec.Template == nil {
			return nil, fmt.Errorf("ReplicationController %s: spec.template: Required value", o.Name)
		}
		w = &workload{kind: "ReplicationController", meta: &o.ObjectMeta, template: o.Spec.Template, replicas: ptr.Deref(o.Spec.Replicas, 1)}
	case *batchv1.Job:
		w = &workload{kind: "Job", meta: &o.ObjectMeta, template: &o.Spec.Template, replicas: parallelism(&o.Spec)}
	case *batchv1.CronJob:
		w = &workload{kind: "CronJob", meta: &o.ObjectMeta, template: &o.Spec.JobTemplate.Spec.Template, replicas: parallelism(&o.Spec.JobTemplate.Spec)}
	case *appsv1.DaemonSet:
		return nil, fmt.Errorf("DaemonSet %s: its pods are made for one node each: ask about a pod of it", o.Name)
	default:
		return nil, nil
	}
	if w.replicas < 0 {
		return nil, fmt.Errorf("%s %s: the number of pods is %d: want 0 or more", w.kind, w.meta.Name, w.replicas)
	}
	return w, nil
}

func parallelism(job *batchv1.JobSpec) int32 {
	at := ptr.Deref(job.Parallelism, 1)
	if job.Completions != nil {
		at = min(at, *job.Completions)
	}
	return at
}

// pod returns the pod of an index.
func (w *workload) pod(i int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
	pod.Name, pod.GenerateName = fmt.Sprintf("%s-%d", w.meta.Name, int(w.start)+i), ""
	pod.Namespace = w.meta.Namespace
	podquery.SetClaimTemplates(pod, w.claims)
	return pod
}

// claimOf returns the claim of a pod that is made from a template of a StatefulSet.
func claimOf(template *v1.PersistentVolumeClaim, pod *v1.Pod) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: template.Name + "-" + pod.Name, Namespace: pod.Namespace, Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

// Admission completes pods that have not passed the API server.
type Admission struct {
	// Namespace is of pods that name none.
	Namespace string
	classes   map[string]*schedulingv1.PriorityClass
	features  *feature.Set
	// Refused says that priority classes could not be read: priorities are 0.
	Refused []string
}

// NewAdmission reads the priority classes.
func NewAdmission(ctx context.Context, kube kubernetes.Interface, namespace string) (*Admission, error) {
	features, err := feature.Parse(nil)
	if err != nil {
		return nil, err
	}
	a := &Admission{Namespace: namespace, features: features, classes: map[string]*schedulingv1.PriorityClass{}}
	classes, err := kube.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		a.Refused = []string{err.Error()}
		return a, nil
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		a.classes[class.Name] = class
		if class.GlobalDefault {
			a.classes[""] = class
		}
	}
	return a, nil
}

// Admit sets defaults and the priority, and checks the pod.
func (a *Admission) Admit(pod *v1.Pod) error {
	if pod.Name == "" && pod.GenerateName != "" {
		pod.Name = strings.TrimSuffix(pod.GenerateName, "-")
	}
	pod.Namespace = cmp.Or(pod.Namespace, a.Namespace)
	podresource.Default(pod)
	podresource.DefaultPodLevelResources(a.features, &pod.Spec)
	if err := podresource.ValidateCreate(pod, a.features).ToAggregate(); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	class := a.classes[pod.Spec.PriorityClassName]
	switch {
	case class != nil:
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = ptr.To(class.Value), class.PreemptionPolicy
	case pod.Spec.PriorityClassName != "" && len(a.Refused) == 0:
		return fmt.Errorf("pod %s: spec.priorityClassName: no PriorityClass with name %s was found", pod.Name, pod.Spec.PriorityClassName)
	}
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} { // as DefaultTolerationSeconds
		taint := &v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute}
		if !podquery.Tolerates(pod.Spec.Tolerations, taint, false) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: taint.Effect, TolerationSeconds: ptr.To[int64](300)})
		}
	}
	return nil
}
