// Package source tells the kubelet which pods it is to run: those that the
// API server has bound to the node, those in a folder of manifests and those
// at a URL. The latter two are static: nobody schedules them, and the API
// server shows a mirror of each. It stands for upstream's pod config sources
// (package config) and its mirror client.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The names of the sources, as the annotation kubernetes.io/config.source has them.
const (
	APIName    = "api"
	FolderName = "file"
	URLName    = "http"
)

// The annotations by which static pods and their mirrors are known.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationSeen   = "kubernetes.io/config.seen"
)

// Update is one change, or with Ready the news that a source has told all the
// pods it had at the start.
type Update struct {
	Source  string
	Pod     *v1.Pod
	Removed bool
	Ready   bool
}

// Source tells of pods.
type Source struct {
	Name string
	// Run sends updates until ctx ends.
	Run func(ctx context.Context, updates chan<- Update)
}

// All are the sources that a kubelet's configuration names. c is nil without an
// API server.
func All(configuration *kubeletconfig.KubeletConfiguration, c *client.Client, disk files.FS, nodeName string) (all []Source) {
	if c != nil {
		all = append(all, Source{APIName, func(ctx context.Context, updates chan<- Update) { API(ctx, c, nodeName, updates) }})
	}
	if path := configuration.StaticPodPath; path != "" {
		all = append(all, Source{FolderName, func(ctx context.Context, updates chan<- Update) {
			Folder(ctx, disk, path, nodeName, configuration.FileCheckFrequency.Duration, updates)
		}})
	}
	if url := configuration.StaticPodURL; url != "" {
		all = append(all, Source{URLName, func(ctx context.Context, updates chan<- Update) {
			URL(ctx, url, configuration.StaticPodURLHeader, nodeName, configuration.HTTPCheckFrequency.Duration, updates)
		}})
	}
	return all
}

// IsStatic says whether the pod comes from a manifest. Its annotations do not
// matter: those of the API server's pods are whatever their users wrote.
func (u *Update) IsStatic() bool { return u.Source != APIName }

// IsMirror says whether the pod is the API server's image of a static pod, or
// pretends to be: neither is ever run.
func (u *Update) IsMirror() bool {
	return podutil.IsMirror(u.Pod) && !u.IsStatic()
}

func send(ctx context.Context, updates chan<- Update, u Update) {
	select {
	case updates <- u:
	case <-ctx.Done():
	}
}

// API feeds the pods bound to the node until ctx ends.
func API(ctx context.Context, c *client.Client, nodeName string, updates chan<- Update) {
	informer := c.Watch(v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", nodeName))
	synced, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { send(ctx, updates, Update{Source: APIName, Pod: object.(*v1.Pod)}) },
		UpdateFunc: func(before, after any) {
			old, pod := before.(*v1.Pod), after.(*v1.Pod)
			if old.UID != pod.UID {
				send(ctx, updates, Update{Source: APIName, Pod: old, Removed: true})
			}
			send(ctx, updates, Update{Source: APIName, Pod: pod})
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if pod, ok := object.(*v1.Pod); ok {
				send(ctx, updates, Update{Source: APIName, Pod: pod, Removed: true})
			}
		},
	})
	if err != nil {
		supervise.Fail(ctx, err)
		return
	}
	if cache.WaitFor(ctx, "", synced) {
		send(ctx, updates, Update{Source: APIName, Ready: true})
	}
	<-ctx.Done()
}

// decode reads the pods of one manifest: a Pod, a PodList, or several
// documents of YAML.
func decode(raw []byte, from, nodeName string) ([]*v1.Pod, error) {
	var out []*v1.Pod
	for _, document := range strings.Split("\n"+string(raw), "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		switch kind.Kind {
		case "Pod":
			pod := &v1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(document), pod); err != nil {
				return nil, err
			}
			out = append(out, pod)
		case "PodList", "List":
			list := &v1.PodList{}
			if err := yaml.Unmarshal([]byte(document), list); err != nil {
				return nil, err
			}
			for i := range list.Items {
				out = append(out, &list.Items[i])
			}
		default:
			return nil, fmt.Errorf("expected a Pod, found kind %q", kind.Kind)
		}
	}
	for i, pod := range out {
		if err := names(pod); err != nil {
			return nil, err
		}
		out[i] = static(pod, from, nodeName)
	}
	return out, nil
}

// names refuses what the API server would refuse of a pod's names, of which
// paths are made.
func names(pod *v1.Pod) error {
	var problems []string
	for _, of := range []struct {
		field, value string
		optional     bool
		problems     func(string) []string
	}{
		{"metadata.name", pod.Name, false, validation.IsDNS1123Subdomain},
		{"metadata.namespace", pod.Namespace, true, validation.IsDNS1123Label},
		{"metadata.uid", string(pod.UID), true, uidProblems},
	} {
		if of.value == "" && of.optional {
			continue
		}
		for _, problem := range of.problems(of.value) {
			problems = append(problems, fmt.Sprintf("%s: %q: %s", of.field, of.value, problem))
		}
	}
	for c := range podutil.Containers(&pod.Spec) {
		for _, problem := range validation.IsDNS1123Label(c.Name) {
			problems = append(problems, fmt.Sprintf("container %q: %s", c.Name, problem))
		}
	}
	for i := range pod.Spec.Volumes {
		for _, problem := range validation.IsDNS1123Label(pod.Spec.Volumes[i].Name) {
			problems = append(problems, fmt.Sprintf("volume %q: %s", pod.Spec.Volumes[i].Name, problem))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("a pod's names are not usable: %s", strings.Join(problems, "; "))
	}
	return nil
}

// uidProblems refuses UIDs by which the pod's files would not be found again.
func uidProblems(uid string) []string {
	if files.IsPodUID(uid) {
		return nil
	}
	return []string{"must be a UUID in lower case or 32 hexadecimal digits, or be left out"}
}

// static fills in what the API server would, and an identity that is the same
// as long as the manifest is.
func static(pod *v1.Pod, from, nodeName string) *v1.Pod {
	pod.Status = v1.PodStatus{}
	if pod.UID == "" {
		raw, _ := json.Marshal(pod)
		sum := sha256.Sum256([]byte("host:" + nodeName + " " + from + " " + string(raw)))
		pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	}
	if !strings.HasSuffix(pod.Name, "-"+nodeName) {
		pod.Name += "-" + strings.ToLower(nodeName)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	annotations := map[string]string{
		AnnotationSource: from, AnnotationHash: string(pod.UID), AnnotationSeen: time.Now().Format(time.RFC3339Nano),
	}
	for k, v := range pod.Annotations {
		if _, own := annotations[k]; !own {
			annotations[k] = v
		}
	}
	pod.Annotations = annotations
	pod.Spec.NodeName = nodeName
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	defaults(&pod.Spec)
	return pod
}

// defaults sets the fields of a manifest that the kubelet relies on.
func defaults(s *v1.PodSpec) {
	if s.RestartPolicy == "" {
		s.RestartPolicy = v1.RestartPolicyAlways
	}
	if s.DNSPolicy == "" {
		s.DNSPolicy = v1.DNSClusterFirst
	}
	if s.SchedulerName == "" {
		s.SchedulerName = v1.DefaultSchedulerName
	}
	if s.TerminationGracePeriodSeconds == nil {
		seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
		s.TerminationGracePeriodSeconds = &seconds
	}
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	if s.EnableServiceLinks == nil {
		links := v1.DefaultEnableServiceLinks
		s.EnableServiceLinks = &links
	}
	for c := range podutil.Containers(s) {
		if c.TerminationMessagePath == "" {
			c.TerminationMessagePath = v1.TerminationMessagePathDefault
		}
		if c.TerminationMessagePolicy == "" {
			c.TerminationMessagePolicy = v1.TerminationMessageReadFile
		}
		if c.ImagePullPolicy == "" {
			c.ImagePullPolicy = v1.PullIfNotPresent
			name := c.Image[strings.LastIndex(c.Image, "/")+1:]
			if strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@") {
				c.ImagePullPolicy = v1.PullAlways
			}
		}
		for j := range c.Ports {
			if c.Ports[j].Protocol == "" {
				c.Ports[j].Protocol = v1.ProtocolTCP
			}
			if s.HostNetwork && c.Ports[j].HostPort == 0 {
				c.Ports[j].HostPort = c.Ports[j].ContainerPort
			}
		}
		for resource, limit := range c.Resources.Limits {
			if _, ok := c.Resources.Requests[resource]; !ok {
				if c.Resources.Requests == nil {
					c.Resources.Requests = v1.ResourceList{}
				}
				c.Resources.Requests[resource] = limit
			}
		}
		for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			probeDefaults(p)
		}
	}
}

func probeDefaults(p *v1.Probe) {
	if p == nil {
		return
	}
	for _, d := range []struct {
		field *int32
		value int32
	}{{&p.TimeoutSeconds, 1}, {&p.PeriodSeconds, 10}, {&p.SuccessThreshold, 1}, {&p.FailureThreshold, 3}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if p.HTTPGet != nil && p.HTTPGet.Path == "" {
		p.HTTPGet.Path = "/"
	}
}
