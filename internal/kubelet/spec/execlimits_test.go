package spec

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// objectReads has one object for every name, and counts the reads.
type objectReads struct {
	configMap map[string]string
	secret    map[string][]byte
	reads     int
}

func (o *objectReads) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	o.reads++
	return &v1.ConfigMap{Data: o.configMap}, nil
}

func (o *objectReads) Secret(context.Context, string, string) (*v1.Secret, error) {
	o.reads++
	return &v1.Secret{Data: o.secret}, nil
}

// multiplied are variables of which each names the one before it ten times.
func multiplied(n int) []v1.EnvVar {
	env := []v1.EnvVar{{Name: "V0", Value: "0123456789"}}
	for i := 1; i < n; i++ {
		env = append(env, v1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i-1), 10)})
	}
	return env
}

func repeated(n int, name, value string) []v1.EnvVar {
	var env []v1.EnvVar
	for i := range n {
		env = append(env, v1.EnvVar{Name: fmt.Sprint(name, i), Value: value})
	}
	return env
}

// What a container's variables and arguments multiply is never built: the
// container fails once they exceed what execve takes.
func TestEnvironmentsAreBounded(t *testing.T) {
	const most = 8 * maxStrings // allocated, whatever the pod asks for
	large := &objectReads{
		configMap: map[string]string{"k": strings.Repeat("x", 1<<20)},
		secret:    map[string][]byte{"k": make([]byte, 100_000)},
	}
	prefixed := func(n int) (from []v1.EnvFromSource) {
		for i := range n {
			from = append(from, v1.EnvFromSource{Prefix: fmt.Sprint("P", i, "_"), SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}})
		}
		return from
	}
	var services []*v1.Service
	for i := range 20_000 {
		services = append(services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("service-", i), Namespace: "ns"},
			Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []v1.ServicePort{{Port: 80}}}})
	}
	for name, test := range map[string]struct {
		container v1.Container
		services  []*v1.Service
		want      string // in the error
	}{
		"variables that multiply":     {v1.Container{Env: multiplied(8)}, nil, "environment variable V5 "},
		"a long variable":             {v1.Container{Env: []v1.EnvVar{{Name: "LONG", Value: strings.Repeat("x", maxString)}}}, nil, "environment variable LONG "},
		"many variables":              {v1.Container{Env: repeated(30, "V", strings.Repeat("x", 100_000))}, nil, "environment variable V20"},
		"many references":             {v1.Container{Env: append([]v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100_000)}}, repeated(1000, "B", "$(A)")...)}, nil, "environment variable B19"},
		"a config map that is a file": {v1.Container{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{}}}}, nil, "environment variable k "},
		"a long key": {v1.Container{Env: []v1.EnvVar{{Name: "KEY", ValueFrom: &v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: "k"}}}}}, nil, "environment variable KEY "},
		"a secret by many prefixes": {v1.Container{EnvFrom: prefixed(1000)}, nil, "environment variable P20_k"},
		"arguments that multiply":   {v1.Container{Env: multiplied(5), Args: []string{"fine", "$(V4)$(V4)"}}, nil, "args 1 "},
		"many arguments":            {v1.Container{Env: multiplied(5), Command: []string{"sh"}, Args: strings.Split(strings.Repeat("$(V4) ", 1000), " ")}, nil, "args 19"},
		"many services":             {v1.Container{}, services, "enableServiceLinks"},
		"as much as fits":           {v1.Container{Env: append(repeated(20, "V", strings.Repeat("x", 100_000)), v1.EnvVar{Name: "L", Value: strings.Repeat("x", 90_000)}), Args: []string{"$(NONE)"}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(true)}}
			env := &Env{Objects: large, Services: test.services}
			var err error
			bytes := allocated(func() {
				var list []Variable
				if list, err = env.Environment(t.Context(), pod, &test.container); err == nil {
					_, err = ContainerConfig(pod, &test.container, node, &Instance{Env: list})
				}
			})
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("the error is %v, want one that names %s", err, test.want)
			}
			if bytes > most {
				t.Errorf("%d bytes are allocated, want at most %d", bytes, most)
			}
		})
	}
}

// An environment reads each object once, however many of its keys it has.
func TestEnvironmentReadsEachObjectOnce(t *testing.T) {
	objects := &objectReads{secret: map[string][]byte{"k": []byte("v")}}
	c := &v1.Container{}
	for i := range 1000 {
		c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}})
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "k"}}})
	}
	list, err := (&Env{Objects: objects}).Environment(t.Context(), &v1.Pod{}, c)
	if err != nil || len(list) != 1001 || objects.reads != 1 {
		t.Errorf("%d variables (%v) after %d reads", len(list), err, objects.reads)
	}
}

// A reference that does not end is not searched for again and again.
func TestExpandStopsAtItsLimit(t *testing.T) {
	lookup := Lookup([]Variable{{"A", strings.Repeat("x", 1000)}})
	for _, text := range []string{strings.Repeat("$(A)", 1000), strings.Repeat("$(", 1<<20), strings.Repeat("x", 1<<20), strings.Repeat("$(B)", 1<<18)} {
		var err error
		bytes := allocated(func() { _, _, err = Expand(text, lookup, 4095) })
		if !errors.Is(err, ErrTooLong) || bytes > 128<<10 {
			t.Errorf("%.10s...: %v after %d bytes", text, err, bytes)
		}
	}
}

// The containers of a pod together have what the container runtime can keep.
func TestEnvironmentsOfManyContainersAreBounded(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: make([]v1.Container, 12), Containers: make([]v1.Container, 500)}}
	for size, fine := range map[int]bool{mostOfPod/512 - 100: true, mostOfPod/512 + 100: false} {
		c := &v1.Container{Env: []v1.EnvVar{{Name: "V", Value: strings.Repeat("x", size)}}}
		_, err := (&Env{}).Environment(t.Context(), pod, c)
		if (err == nil) != fine || err != nil && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "so many containers")) {
			t.Errorf("a variable of %d bytes in each of 512 containers: %v", size, err)
		}
	}
}

// Each container has the supplemental groups of its pod, and the container runtime keeps
// them for each.
func TestGroupsAreBounded(t *testing.T) {
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(true)}}
	for count, fine := range map[int]bool{maxGroups: true, maxGroups + 1: false} {
		pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroups: make([]int64, count)}}}
		if _, err := ContainerConfig(pod, &v1.Container{}, node, &Instance{}); (err == nil) != fine || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%d groups: %v", count, err)
		}
	}
}
