package spec

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// described says what differs from a container that asks for nothing.
func described(c *runtimeapi.LinuxContainerSecurityContext) string {
	var out []string
	add := func(is bool, format string, arguments ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, arguments...))
		}
	}
	add(c.RunAsUser != nil, "user %d", c.GetRunAsUser().GetValue())
	add(c.RunAsGroup != nil, "group %d", c.GetRunAsGroup().GetValue())
	add(len(c.GetSupplementalGroups()) > 0, "groups %d", c.GetSupplementalGroups())
	add(c.GetSupplementalGroupsPolicy() != runtimeapi.SupplementalGroupsPolicy_Merge, "%s", c.GetSupplementalGroupsPolicy())
	add(c.GetPrivileged(), "privileged")
	add(c.GetReadonlyRootfs(), "read-only")
	add(c.GetNoNewPrivs(), "no new rights")
	for name, profile := range map[string]*runtimeapi.SecurityProfile{"seccomp": c.GetSeccomp(), "AppArmor": c.GetApparmor()} {
		unconfined := name == "seccomp" && profile.GetProfileType() == runtimeapi.SecurityProfile_Unconfined
		add(profile != nil && !unconfined, "%s %s %s", name, profile.GetProfileType(), profile.GetLocalhostRef())
	}
	return strings.TrimSpace(strings.Join(out, ", "))
}

// What pods and containers say of users, groups, profiles and rights reaches the
// runtime. What a container says of itself takes precedence.
func TestSecurityContexts(t *testing.T) {
	node := &Node{
		Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(false)},
		RootDirectory: "/kubelet",
	}
	seccomp := func(kind v1.SeccompProfileType, file string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: kind, LocalhostProfile: &file}
	}
	appArmor := func(kind v1.AppArmorProfileType, name string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind, LocalhostProfile: &name}
	}
	const standard, file, none = v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeUnconfined
	denies := appArmor(v1.AppArmorProfileTypeLocalhost, "deny-write")
	for _, test := range []struct {
		pod        v1.PodSecurityContext
		container  v1.SecurityContext
		annotation string
		image      *int64 // user of the image
		want       string
	}{
		{want: ""},
		{pod: v1.PodSecurityContext{RunAsUser: new(int64(7)), RunAsGroup: new(int64(8))}, want: "user 7, group 8"},
		{pod: v1.PodSecurityContext{RunAsUser: new(int64(7))}, container: v1.SecurityContext{RunAsUser: new(int64(0))}, want: "user 0"},
		{image: new(int64(65532)), want: "user 65532"},
		{pod: v1.PodSecurityContext{FSGroup: new(int64(5)), SupplementalGroups: []int64{6, 7}}, want: "groups [5 6 7]"},
		{pod: v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}, want: "Strict"},
		{container: v1.SecurityContext{Privileged: new(true)}, want: "privileged"},
		{container: v1.SecurityContext{ReadOnlyRootFilesystem: new(true)}, want: "read-only"},
		{container: v1.SecurityContext{AllowPrivilegeEscalation: new(false)}, want: "no new rights"},
		{pod: v1.PodSecurityContext{SeccompProfile: seccomp(standard, "")}, want: "seccomp RuntimeDefault"},
		{pod: v1.PodSecurityContext{SeccompProfile: seccomp(standard, "")}, container: v1.SecurityContext{SeccompProfile: seccomp(none, "")}, want: ""},
		{container: v1.SecurityContext{SeccompProfile: seccomp(file, "audit.json")}, want: "seccomp Localhost /kubelet/seccomp/audit.json"},
		{pod: v1.PodSecurityContext{AppArmorProfile: denies}, want: "AppArmor Localhost deny-write"},
		{pod: v1.PodSecurityContext{AppArmorProfile: denies}, container: v1.SecurityContext{AppArmorProfile: appArmor(v1.AppArmorProfileTypeUnconfined, "")}, want: "AppArmor Unconfined"},
		{annotation: "localhost/deny-write", want: "AppArmor Localhost deny-write"},
		{annotation: "runtime/default", pod: v1.PodSecurityContext{AppArmorProfile: denies}, want: "AppArmor RuntimeDefault"},
		{annotation: "runtime/default", container: v1.SecurityContext{AppArmorProfile: denies}, want: "AppArmor Localhost deny-write"},
	} {
		c := v1.Container{Name: "main", SecurityContext: &test.container}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{SecurityContext: &test.pod, Containers: []v1.Container{c}}}
		if test.annotation != "" {
			pod.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": test.annotation}
		}
		config, err := ContainerConfig(pod, &c, node, &Instance{ImageUID: test.image})
		if err != nil {
			t.Errorf("%s: %v", test.want, err)
			continue
		}
		if got := described(config.GetLinux().GetSecurityContext()); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// With seccompDefault, containers that name no profile have that of the runtime.
func TestSeccompDefault(t *testing.T) {
	profile := func(kind v1.SeccompProfileType) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: kind, LocalhostProfile: new("audit.json")}
	}
	const standard, none, file = v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeLocalhost
	for _, test := range []struct {
		pod, container  *v1.SeccompProfile
		want, byDefault string // without and with seccompDefault
	}{
		{nil, nil, "Unconfined ", "RuntimeDefault "},
		{profile(none), nil, "Unconfined ", "Unconfined "},
		{nil, profile(none), "Unconfined ", "Unconfined "},
		{profile(standard), nil, "RuntimeDefault ", "RuntimeDefault "},
		{nil, profile(standard), "RuntimeDefault ", "RuntimeDefault "},
		{profile(none), profile(standard), "RuntimeDefault ", "RuntimeDefault "},
		{profile(standard), profile(none), "Unconfined ", "Unconfined "},
		{profile(file), nil, "Localhost /kubelet/seccomp/audit.json", "Localhost /kubelet/seccomp/audit.json"},
		{profile(none), profile(file), "Localhost /kubelet/seccomp/audit.json", "Localhost /kubelet/seccomp/audit.json"},
	} {
		for on, want := range map[bool]string{false: test.want, true: test.byDefault} {
			node := &Node{
				Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: &on, SingleProcessOOMKill: new(false)},
				RootDirectory: "/kubelet",
			}
			c := v1.Container{Name: "main", SecurityContext: &v1.SecurityContext{SeccompProfile: test.container}}
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SeccompProfile: test.pod}, Containers: []v1.Container{c}}}
			config, err := ContainerConfig(pod, &c, node, &Instance{})
			if err != nil {
				t.Fatal(err)
			}
			got := config.GetLinux().GetSecurityContext().GetSeccomp()
			if text := got.GetProfileType().String() + " " + got.GetLocalhostRef(); text != want {
				t.Errorf("pod %v, container %v, by default %t: %q, want %q", test.pod, test.container, on, text, want)
			}
		}
	}
}
