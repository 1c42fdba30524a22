package client

import (
	"fmt"
	"runtime"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/pkg/version"
)

// identity is who a client is to the API server: the groups given, and those
// that everyone of the name's kind is in.
func identity(name string, groups []string) user.Info {
	all := append([]string(nil), groups...)
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		all = append(all, serviceaccount.MakeGroupNames(namespace)...)
	}
	return &user.DefaultInfo{Name: name, Groups: append(all, user.AllAuthenticated)}
}

// userAgent names the component behind a user the way upstream's components
// call themselves, since the API server derives field managers from it.
func userAgent(name string) string {
	suffix := ""
	component := "coracle"
	switch {
	case name == user.KubeScheduler:
		component = "kube-scheduler"
	case name == user.KubeProxy:
		component = "kube-proxy"
	case name == loopback:
		component = "kube-apiserver"
	case strings.HasPrefix(name, "system:node:"):
		component = "kubelet"
	case name == user.KubeControllerManager:
		component = "kube-controller-manager"
	case strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix+"kube-system:"):
		component, suffix = "kube-controller-manager", "/"+name
	}
	return fmt.Sprintf("%s/%s (%s/%s) coracle%s", component, version.Get().GitVersion, runtime.GOOS, runtime.GOARCH, suffix)
}
