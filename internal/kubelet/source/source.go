// Package source provides the pods that the kubelet runs: pods that the API
// server has bound to the node, pods of manifests in a directory, and pods of a
// manifest at a URL. The latter two are static: they are not scheduled, and the
// API server shows a mirror pod for each. The package corresponds to upstream's pod
// config sources (package config) and mirror client.
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
	"k8s.io/client-go/tools/cache"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/podquery"
	corepod "github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The names of the sources, as in the annotation kubernetes.io/config.source.
const (
	apiName    = "api"
	folderName = "file"
	urlName    = "http"
)

// The annotations that identify static pods and their mirror pods.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationSeen   = "kubernetes.io/config.seen"
)

// Update is one change. With Ready it reports instead that the source has sent
// all pods that existed when it started.
type Update struct {
	Source  string
	Pod     *v1.Pod
	Removed bool
	Ready   bool
}

// Source provides pods.
type Source struct {
	Name string
	// Run sends updates until ctx ends.
	Run func(ctx context.Context, updates chan<- Update)
}

// All returns the sources that the configuration names. c is nil without an API
// server.
func All(configuration *kubeletconfig.KubeletConfiguration, c *client.Client, disk files.FS, nodeName string) (all []Source) {
	if c != nil {
		all = append(all, Source{apiName, func(ctx context.Context, updates chan<- Update) { watchAPI(ctx, c, nodeName, updates) }})
	}
	if path := configuration.StaticPodPath; path != "" {
		all = append(all, Source{folderName, func(ctx context.Context, updates chan<- Update) {
			watchFolder(ctx, disk, path, nodeName, configuration.FileCheckFrequency.Duration, updates)
		}})
	}
	if url := configuration.StaticPodURL; url != "" {
		all = append(all, Source{urlName, func(ctx context.Context, updates chan<- Update) {
			watchURL(ctx, url, configuration.StaticPodURLHeader, nodeName, configuration.HTTPCheckFrequency.Duration, updates)
		}})
	}
	return all
}

// IsStatic reports whether the pod comes from a manifest. Annotations do not
// count, because users can set them on pods of the API server.
func (u *Update) IsStatic() bool { return u.Source != apiName }

// IsMirror reports whether the pod of the API server is a mirror pod or is
// annotated like one. Such pods are never run.
func (u *Update) IsMirror() bool {
	return podquery.IsMirror(u.Pod) && !u.IsStatic()
}

func send(ctx context.Context, updates chan<- Update, u Update) {
	select {
	case updates <- u:
	case <-ctx.Done():
	}
}

// watchAPI sends the pods that are bound to the node until ctx ends.
func watchAPI(ctx context.Context, c *client.Client, nodeName string, updates chan<- Update) {
	kept := newReducer()
	informer := c.WatchReduced(v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", nodeName), kept.reduce)
	set := func(pod *v1.Pod) { send(ctx, updates, Update{Source: apiName, Pod: pod}) }
	remove := func(pod *v1.Pod) {
		kept.forget(pod.UID)
		send(ctx, updates, Update{Source: apiName, Pod: pod, Removed: true})
	}
	synced, err := client.Follow(ctx, informer, client.Handler(set, func(old, pod *v1.Pod) {
		if old.UID != pod.UID {
			remove(old)
		}
		set(pod)
	}, remove))
	if err != nil {
		supervise.Fail(ctx, err)
		return
	}
	if cache.WaitFor(ctx, "", synced) {
		send(ctx, updates, Update{Source: apiName, Ready: true})
	}
	<-ctx.Done()
}

// decode parses a manifest: a Pod, a PodList, or several YAML documents.
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
			if err := checkQuantities(document, pod); err != nil {
				return nil, err
			}
			if err := yaml.UnmarshalStrict([]byte(document), pod); err != nil {
				return nil, err
			}
			out = append(out, pod)
		case "PodList", "List":
			list := &v1.PodList{}
			if err := checkQuantities(document, list); err != nil {
				return nil, err
			}
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
		var err error
		if out[i], err = static(pod, from, nodeName); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkQuantities returns an error if a document has a quantity that would keep the
// kubelet busy for hours, where the type of into has a quantity.
func checkQuantities(document string, into any) error {
	raw, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		return err
	}
	return amount.CheckJSON(into, raw)
}

// static completes and validates a pod of a manifest. It sets the API server's
// defaults, the node, a hash of the manifest, and, unless the manifest has one, a
// UID that stays the same as long as the manifest does. It refuses what the API
// server refuses, UIDs that are not safe as names of directories, and references
// to objects of the API server, which a static pod does not need.
func static(pod *v1.Pod, from, nodeName string) (*v1.Pod, error) {
	if pod.UID != "" && !files.IsPodUID(string(pod.UID)) {
		return nil, fmt.Errorf("invalid pod: metadata.uid: %q: must be a UUID in lower case or 32 hexadecimal digits, or be left out", pod.UID)
	}
	pod.Status = v1.PodStatus{}
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte("host:" + nodeName + " " + from + " " + string(raw)))
	version := hex.EncodeToString(sum[:16])
	if pod.UID == "" {
		pod.UID = types.UID(version)
	}
	if !strings.HasSuffix(pod.Name, "-"+nodeName) {
		pod.Name += "-" + strings.ToLower(nodeName)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	annotations := map[string]string{
		AnnotationSource: from, AnnotationHash: version, AnnotationSeen: time.Now().Format(time.RFC3339Nano),
	}
	for k, v := range pod.Annotations {
		if _, own := annotations[k]; !own {
			annotations[k] = v
		}
	}
	pod.Annotations = annotations
	pod.Spec.NodeName = nodeName
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	corepod.Default(pod)
	corepod.DefaultPodLevelResources(nil, &pod.Spec)
	if errs := corepod.ValidateCreate(pod, nil); len(errs) > 0 {
		return nil, fmt.Errorf("invalid pod: %w", errs.ToAggregate())
	}
	if kind := podquery.APIReference(&pod.Spec); kind != "" {
		return nil, fmt.Errorf("static pods may not reference %s", kind)
	}
	return pod, nil
}
