package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// library has the config map cm and the secret s.
type library struct{}

func (library) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	if name != "cm" {
		return nil, apierrors.NewNotFound(v1.Resource("configmaps"), name)
	}
	return &v1.ConfigMap{Data: map[string]string{"one": "1", "two": "2"}, BinaryData: map[string][]byte{"raw": {0xff}}}, nil
}

func (library) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	if name != "s" {
		return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
	}
	return &v1.Secret{Data: map[string][]byte{"one": []byte("hidden"), "key": []byte("k")}}, nil
}

// payloadCase is a volume, and its files: their contents and modes by their paths. If
// it cannot be set up, refused has what the error says.
type payloadCase struct {
	source  v1.VolumeSource
	files   map[string]string
	refused []string
}

// check sets the volume up for a pod with a container named main.
func (c *payloadCase) check(t *testing.T) {
	t.Helper()
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: library{}, Tokens: tokens{}}
	pod := podWith(nil, v1.Volume{Name: "v", VolumeSource: c.source})
	pod.Name, pod.Labels = "web", map[string]string{"b": `say "hi"`, "a": "x"}
	pod.Annotations = map[string]string{"note": "of the pod"}
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	for _, part := range c.refused {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, want one with %q", err, part)
		}
	}
	if len(c.refused) > 0 {
		if _, err := disk.Lstat(v.dir(pod.UID, plugin(&pod.Spec.Volumes[0]), "v") + "/..data"); err == nil {
			t.Error("the volume was written")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	top := map[string]bool{}
	for path, want := range c.files {
		name, _, _ := strings.Cut(path, "/")
		top[name] = true
		raw, err := disk.ReadFile(paths["v"]+"/"+path, 1<<10)
		mode, modeErr := disk.Stat(paths["v"] + "/" + path)
		if got := fmt.Sprintf("%s %o", raw, mode); err != nil || modeErr != nil || got != want {
			t.Errorf("%s: %q (%v, %v), want %q", path, got, err, modeErr, want)
		}
	}
	names, err := disk.ReadDir(paths["v"])
	shown := slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "..") })
	if want := slices.Sorted(maps.Keys(top)); err != nil || !slices.Equal(shown, want) {
		t.Errorf("the volume shows %q (%v), want %q", shown, err, want)
	}
}

func configMapVolume(name string, change func(s *v1.ConfigMapVolumeSource)) v1.VolumeSource {
	source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}
	if change != nil {
		change(source)
	}
	return v1.VolumeSource{ConfigMap: source}
}

func TestFilesOfConfigMaps(t *testing.T) {
	deep := []v1.KeyToPath{{Key: "one", Path: "dir/deep/1", Mode: new(int32(0o600))}, {Key: "two", Path: "dir/2"}}
	absent := append(slices.Clone(deep), v1.KeyToPath{Key: "three", Path: "3"})
	for name, c := range map[string]payloadCase{
		"all keys":       {source: configMapVolume("cm", nil), files: map[string]string{"one": "1 644", "two": "2 644", "raw": "\xff 644"}},
		"a default mode": {source: configMapVolume("cm", func(s *v1.ConfigMapVolumeSource) { s.DefaultMode = new(int32(0o400)) }), files: map[string]string{"one": "1 400", "two": "2 400", "raw": "\xff 400"}},
		"items": {source: configMapVolume("cm", func(s *v1.ConfigMapVolumeSource) { s.Items, s.DefaultMode = deep, new(int32(0o440)) }),
			files: map[string]string{"dir/deep/1": "1 600", "dir/2": "2 440"}},
		"binary data": {source: configMapVolume("cm", func(s *v1.ConfigMapVolumeSource) { s.Items = []v1.KeyToPath{{Key: "raw", Path: "bin"}} }),
			files: map[string]string{"bin": "\xff 644"}},
		"a key that is not there": {source: configMapVolume("cm", func(s *v1.ConfigMapVolumeSource) { s.Items = absent }),
			refused: []string{`MountVolume.SetUp failed for volume "v" : references non-existent config key: three`}},
		"one that is optional": {source: configMapVolume("cm", func(s *v1.ConfigMapVolumeSource) { s.Items, s.Optional = absent, new(true) }),
			files: map[string]string{"dir/deep/1": "1 600", "dir/2": "2 644"}},
		"a map that is not there": {source: configMapVolume("none", nil), refused: []string{`configmaps "none" not found`}},
		"one that need not be":    {source: configMapVolume("none", func(s *v1.ConfigMapVolumeSource) { s.Optional = new(true) }), files: map[string]string{}},
	} {
		t.Run(name, c.check)
	}
}

func TestFilesOfSecrets(t *testing.T) {
	secret := func(name string, mode *int32, optional *bool, items ...v1.KeyToPath) v1.VolumeSource {
		return v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name, DefaultMode: mode, Optional: optional, Items: items}}
	}
	key, absent := v1.KeyToPath{Key: "key", Path: "dir/k", Mode: new(int32(0o400))}, v1.KeyToPath{Key: "three", Path: "3"}
	for name, c := range map[string]payloadCase{
		"all keys":                   {source: secret("s", nil, nil), files: map[string]string{"one": "hidden 644", "key": "k 644"}},
		"a default mode":             {source: secret("s", new(int32(0o440)), nil), files: map[string]string{"one": "hidden 440", "key": "k 440"}},
		"an item":                    {source: secret("s", new(int32(0o440)), nil, key), files: map[string]string{"dir/k": "k 400"}},
		"a key that is not there":    {source: secret("s", nil, nil, key, absent), refused: []string{"references non-existent secret key: three"}},
		"one that is optional":       {source: secret("s", nil, new(true), key, absent), files: map[string]string{"dir/k": "k 400"}},
		"a secret that is not there": {source: secret("none", nil, new(false)), refused: []string{`secrets "none" not found`}},
		"one that need not be":       {source: secret("none", nil, new(true)), files: map[string]string{}},
	} {
		t.Run(name, c.check)
	}
}

func TestFilesOfThePodItself(t *testing.T) {
	field := func(path, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
	}
	limit := func(container string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: "limit", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}
	}
	pod := func(items ...v1.DownwardAPIVolumeFile) v1.VolumeSource {
		return v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items, DefaultMode: new(int32(0o444))}}
	}
	private := field("meta/uid", "metadata.uid")
	private.Mode = new(int32(0o400))
	for name, c := range map[string]payloadCase{
		"labels and annotations": {source: pod(field("labels", "metadata.labels"), field("annotations", "metadata.annotations"), field("note", "metadata.annotations['note']")), files: map[string]string{
			"labels": "a=\"x\"\nb=\"say \\\"hi\\\"\" 444", "annotations": "note=\"of the pod\" 444", "note": "of the pod 444",
		}},
		"its names":            {source: pod(field("meta/name", "metadata.name"), field("meta/namespace", "metadata.namespace"), private), files: map[string]string{"meta/name": "web 444", "meta/namespace": "default 444", "meta/uid": "uid 400"}},
		"a limit":              {source: pod(limit("main")), files: map[string]string{"limit": "64 444"}},
		"no such container":    {source: pod(limit("none")), refused: []string{"container none not found"}},
		"a field it lacks":     {source: pod(field("x", "spec.colour")), refused: []string{"unsupported fieldPath: spec.colour"}},
		"two that are refused": {source: pod(field("x", "spec.colour"), limit("none")), refused: []string{"spec.colour", "container none not found"}},
	} {
		t.Run(name, c.check)
	}
}

// A projected volume has the files of all of its sources. Of two with the same path, the
// later one is there. All sources that fail are named.
func TestFilesOfProjectedVolumes(t *testing.T) {
	config := func(name string, items ...v1.KeyToPath) v1.VolumeProjection {
		return v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}}
	}
	secret := func(name string, optional *bool, items ...v1.KeyToPath) v1.VolumeProjection {
		return v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items, Optional: optional}}
	}
	all := func(sources ...v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o640))}}
	}
	label := v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
		{Path: "dir/label", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['a']"}, Mode: new(int32(0o400))},
	}}}
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "dir/token"}}
	for name, c := range map[string]payloadCase{
		"every kind": {source: all(config("cm", v1.KeyToPath{Key: "one", Path: "dir/1"}), secret("s", nil, v1.KeyToPath{Key: "key", Path: "dir/k", Mode: new(int32(0o600))}), label, token), files: map[string]string{
			"dir/1": "1 640", "dir/k": "k 600", "dir/label": "x 400", "dir/token": "token 640",
		}},
		"all keys, and one path twice": {source: all(config("cm"), secret("s", nil)), files: map[string]string{"one": "hidden 640", "two": "2 640", "raw": "\xff 640", "key": "k 640"}},
		"the other order":              {source: all(secret("s", nil), config("cm")), files: map[string]string{"one": "1 640", "two": "2 640", "raw": "\xff 640", "key": "k 640"}},
		"one that need not be":         {source: all(secret("none", new(true)), label), files: map[string]string{"dir/label": "x 400"}},
		"two that are not there": {source: all(config("none"), label, secret("nothing", nil), secret("s", nil, v1.KeyToPath{Key: "three", Path: "3"})),
			refused: []string{`configmaps "none" not found`, `secrets "nothing" not found`, "references non-existent secret key: three"}},
		"no sources": {source: all(), files: map[string]string{}},
	} {
		t.Run(name, c.check)
	}
}
