package connect

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/podquery"
)

// query parses the query parameters of connections as upstream does.
type query url.Values

func (q query) text(name string) string { return url.Values(q).Get(name) }

// is parses a boolean: any value other than "false" and "0" is true.
func (q query) is(name string) bool {
	values := q[name]
	return len(values) > 0 && !strings.EqualFold(values[0], "false") && values[0] != "0"
}

func (q query) number(name string) (*int64, error) {
	text := q.text(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return &n, nil
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }

func (q query) execOptions() *corev1.PodExecOptions {
	o := &corev1.PodExecOptions{
		TypeMeta: typeMeta("PodExecOptions"),
		Stdin:    q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"),
		Container: q.text("container"), Command: q["command"],
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		o.Stdout, o.Stderr = true, true
	}
	return o
}

func (q query) attachOptions() *corev1.PodAttachOptions {
	o := &corev1.PodAttachOptions{
		TypeMeta: typeMeta("PodAttachOptions"),
		Stdin:    q.is("stdin"), Stdout: q.is("stdout"), Stderr: q.is("stderr"), TTY: q.is("tty"),
		Container: q.text("container"),
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		o.Stdout, o.Stderr = true, true
	}
	return o
}

func (q query) portForwardOptions() (*corev1.PodPortForwardOptions, error) {
	o := &corev1.PodPortForwardOptions{TypeMeta: typeMeta("PodPortForwardOptions")}
	for _, list := range q["ports"] {
		for text := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			o.Ports = append(o.Ports, int32(port))
		}
	}
	return o, nil
}

// logOptions parses the options of a pod's log. Only with split may they
// select one of the streams (KEP-3288).
func (q query) logOptions(pod string, split bool) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{
		TypeMeta:  typeMeta("PodLogOptions"),
		Container: q.text("container"), Follow: q.is("follow"), Previous: q.is("previous"), Timestamps: q.is("timestamps"),
		InsecureSkipTLSVerifyBackend: q.is("insecureSkipTLSVerifyBackend"),
	}
	var err error
	if o.SinceSeconds, err = q.number("sinceSeconds"); err != nil {
		return nil, err
	}
	if o.TailLines, err = q.number("tailLines"); err != nil {
		return nil, err
	}
	if o.LimitBytes, err = q.number("limitBytes"); err != nil {
		return nil, err
	}
	if text := q.text("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.SinceTime = &metav1.Time{Time: since}
	}
	if text := q.text("stream"); text != "" {
		o.Stream = &text
	}
	if errs := podquery.ValidateLogOptions(o, split); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, pod, errs)
	}
	return o, nil
}

// proxyOptions returns the options that admission sees for a proxy request.
func proxyOptions(info *apirequest.RequestInfo, _ *http.Request) runtime.Object {
	path := proxyPath(info)
	switch info.Resource {
	case "pods":
		return &corev1.PodProxyOptions{TypeMeta: typeMeta("PodProxyOptions"), Path: path}
	case "services":
		return &corev1.ServiceProxyOptions{TypeMeta: typeMeta("ServiceProxyOptions"), Path: path}
	}
	return &corev1.NodeProxyOptions{TypeMeta: typeMeta("NodeProxyOptions"), Path: path}
}

// proxyPath returns what follows /proxy in a request's path: "", or a path
// that starts with a slash.
func proxyPath(info *apirequest.RequestInfo) string {
	path := ""
	if len(info.Parts) > 3 {
		path = strings.Join(info.Parts[3:], "/")
	}
	if path != "" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if strings.HasSuffix(info.Path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

// proxiedPath returns the path in options after admission.
func proxiedPath(options runtime.Object) string {
	switch o := options.(type) {
	case *corev1.PodProxyOptions:
		return o.Path
	case *corev1.ServiceProxyOptions:
		return o.Path
	case *corev1.NodeProxyOptions:
		return o.Path
	}
	return ""
}
