package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The source of a pod decides whether it is static, not its annotations.
func TestTheSourceDecides(t *testing.T) {
	annotated := func(key, value string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
	}
	for _, test := range []struct {
		from           string
		pod            *v1.Pod
		static, mirror bool
	}{
		{apiName, &v1.Pod{}, false, false},
		{apiName, annotated(AnnotationSource, folderName), false, false},
		{apiName, annotated(AnnotationHash, "1"), false, false},
		{apiName, annotated(v1.MirrorPodAnnotationKey, "1"), false, true},
		{folderName, &v1.Pod{}, true, false},
		{folderName, annotated(AnnotationSource, apiName), true, false},
		{urlName, annotated(v1.MirrorPodAnnotationKey, "1"), true, false},
	} {
		u := Update{Source: test.from, Pod: test.pod}
		if u.IsStatic() != test.static || u.IsMirror() != test.mirror {
			t.Errorf("from %s with %v: static %v, mirror %v", test.from, test.pod.Annotations, u.IsStatic(), u.IsMirror())
		}
	}
}

func TestNamesOfManifests(t *testing.T) {
	const container = "{name: main, image: a}"
	for manifest, want := range map[string]string{
		"{kind: Pod, metadata: {name: web}, spec: {containers: [" + container + "]}}":                                                                              "",
		"{kind: Pod, metadata: {name: web, uid: 11d0a3c2-0a2b-4c5d-8e9f-001122334455, namespace: kube-system}, spec: {containers: [" + container + "]}}":           "",
		"{kind: Pod, metadata: {name: web, uid: 0123456789abcdef0123456789abcdef}, spec: {containers: [" + container + "]}}":                                       "",
		"{kind: Pod, metadata: {name: web, uid: web-1}, spec: {containers: [" + container + "]}}":                                                                  "metadata.uid",
		"{kind: Pod, metadata: {name: web, uid: 11D0A3C2-0A2B-4C5D-8E9F-001122334455}, spec: {containers: [" + container + "]}}":                                   "metadata.uid",
		"{kind: Pod, metadata: {name: ../web}, spec: {containers: [" + container + "]}}":                                                                           "metadata.name",
		"{kind: Pod, metadata: {}, spec: {containers: [" + container + "]}}":                                                                                       "metadata.name",
		"{kind: Pod, metadata: {name: web, namespace: a/b}, spec: {containers: [" + container + "]}}":                                                              "metadata.namespace",
		"{kind: Pod, metadata: {name: web, uid: ../../etc}, spec: {containers: [" + container + "]}}":                                                              "metadata.uid",
		"{kind: Pod, metadata: {name: web}, spec: {containers: [{name: ../x, image: a}]}}":                                                                         "container",
		"{kind: Pod, metadata: {name: web}, spec: {volumes: [{name: .., emptyDir: {}}], containers: [" + container + "]}}":                                         "volume",
		"{kind: PodList, items: [{metadata: {name: web, uid: ../../etc}, spec: {containers: [" + container + "]}}]}":                                               "metadata.uid",
		"{kind: PodList, items: [{metadata: {name: a}, spec: {containers: [" + container + "]}}, {metadata: {name: b}, spec: {containers: [" + container + "]}}]}": "",
	} {
		_, err := decode([]byte(manifest), folderName, "alpha")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", manifest, err, want)
		}
	}
}

// The kubelet refuses a static pod for the same reasons as the API server.
func TestDecodeValidates(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"no containers":     {"{containers: []}", "spec.containers: Required value"},
		"no image":          {"{containers: [{name: main}]}", "spec.containers[0].image: Required value"},
		"a container twice": {"{containers: [{name: main, image: a}, {name: main, image: a}]}", `spec.containers[1].name: Duplicate value: "main"`},
		"an unknown volume": {"{containers: [{name: main, image: a, volumeMounts: [{name: data, mountPath: /data}]}]}", `spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		"a negative limit":  {`{containers: [{name: main, image: a, resources: {limits: {memory: "-1"}}}]}`, "spec.containers[0].resources.limits[memory]: Invalid value"},
		"a bad port":        {"{containers: [{name: main, image: a, ports: [{containerPort: 70000}]}]}", "spec.containers[0].ports[0].containerPort: Invalid value: 70000"},
		"a service account": {"{serviceAccount: web, containers: [{name: main, image: a}]}", "static pods may not reference a service account"},
		"a secret":          {"{containers: [{name: main, image: a, envFrom: [{secretRef: {name: keys}}]}]}", "static pods may not reference secrets"},
		"a config map":      {"{volumes: [{name: config, configMap: {name: config}}], containers: [{name: main, image: a}]}", "static pods may not reference configmaps"},
	} {
		_, err := decode([]byte("{kind: Pod, metadata: {name: web}, spec: "+test.spec+"}"), folderName, "alpha")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A static pod has the API server's defaults.
func TestDecodeSetsDefaults(t *testing.T) {
	const spec = `{hostNetwork: true, volumes: [{name: config, hostPath: {path: /etc}}, {name: self, downwardAPI: {items: []}}], containers: [
	  {name: main, image: "registry:5000/a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ports: [{containerPort: 80}],
	   resources: {limits: {cpu: 1}}, livenessProbe: {httpGet: {port: 80}}, lifecycle: {preStop: {httpGet: {port: 80}}}}]}`
	pods, err := decode([]byte("{kind: Pod, metadata: {name: web}, spec: "+spec+"}"), folderName, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	s := &pods[0].Spec
	c := &s.Containers[0]
	if mode := s.Volumes[1].DownwardAPI.DefaultMode; mode == nil || *mode != 0o644 || s.Volumes[0].HostPath.Type == nil {
		t.Errorf("volumes: %+v", s.Volumes)
	}
	if c.ImagePullPolicy != v1.PullIfNotPresent || c.Ports[0].Protocol != v1.ProtocolTCP || c.Ports[0].HostPort != 80 || c.Resources.Requests.Cpu().Value() != 1 {
		t.Errorf("container: %+v", c)
	}
	if p := c.LivenessProbe; p.HTTPGet.Scheme != v1.URISchemeHTTP || p.HTTPGet.Path != "/" || p.PeriodSeconds != 10 || c.Lifecycle.PreStop.HTTPGet.Scheme != v1.URISchemeHTTP {
		t.Errorf("probe: %+v, hook: %+v", p, c.Lifecycle.PreStop)
	}
}
