// Package chart draws line charts as SVG that follow the page they are on: their colours are
// variables of CSS, so one picture serves a light page and a dark one.
//
// gonum.org/v1/plot does the drawing. The package chooses scales, ticks, colours and marks so that a
// reader who sees no colours can tell the lines apart. It imports no package of this module.
package chart

import (
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Point is one value. Low and High are the ends of its whisker; both 0 mean that it has none.
type Point struct{ X, Y, Low, High float64 }

// A Series is one line. Series of the same index look the same in every chart.
type Series struct {
	Name   string
	Points []Point // by ascending X
}

// An Axis is one direction of a chart.
type Axis struct {
	// Label names the values and their unit.
	Label string
	Log   bool
	// Min and Max are the ends.
	Min, Max float64
	Ticks    []Tick
}

// A Tick is a mark on an axis, with a line across the chart if it has a label.
type Tick struct {
	At    float64
	Label string
}

// A Chart is a picture of several lines.
type Chart struct {
	// Title says what a reader sees who hears the page.
	Title  string
	X, Y   Axis
	Series []Series
	// Marks puts a mark on every point. It is for lines of few points.
	Marks bool
	// Width and Height are in CSS pixels, before the page scales the picture.
	Width, Height float64
}

// The colours of a picture while it is drawn. SVG replaces each with a variable.
var (
	inkColour  = color.RGBA{R: 1, G: 1, B: 1, A: 255}
	gridColour = color.RGBA{R: 2, G: 2, B: 2, A: 255}
)

func lineColour(i int) color.Color { return color.RGBA{R: 3, G: 3, B: uint8(i % Colours), A: 255} }

// textSize is that of all text, in CSS pixels.
const textSize = 12

// textStyle is the style of all text.
func textStyle() draw.TextStyle {
	return draw.TextStyle{
		Color: inkColour, Handler: plot.DefaultTextHandler,
		Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, textSize),
	}
}

// drawn adapts what vgsvg draws: colours become variables, and the page chooses the font.
var (
	drawnColour = regexp.MustCompile(`#(01|02|03)(?:01|02|03)([0-9A-F]{2})`)
	drawnFont   = regexp.MustCompile(`font-family:[^;]*;font-variant:[^;]*;font-weight:[^;]*;font-style:[^;]*;`)
)

// SVG returns the picture as an element for a page of HTML that has CSS in its style sheet.
func (c Chart) SVG() (template.HTML, error) {
	body, err := c.body()
	if err != nil {
		return "", fmt.Errorf("draw %q: %w", c.Title, err)
	}
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">%s</svg>`,
		c.Width, c.Height, html.EscapeString(c.Title), body)), nil
}

// body returns what the picture's element has inside.
func (c Chart) body() (string, error) {
	p := plot.New()
	p.BackgroundColor = nil
	c.X.apply(&p.X, "")
	// A space keeps the labels off their ticks if the reader's font is wider than gonum's.
	c.Y.apply(&p.Y, "\u00a0")
	grid := plotter.NewGrid()
	for _, s := range []*draw.LineStyle{&grid.Horizontal, &grid.Vertical} {
		s.Color, s.Width = gridColour, 1
	}
	p.Add(grid)
	// The first series is drawn last, on top of the others.
	for i := len(c.Series) - 1; i >= 0; i-- {
		if err := c.line(p, i); err != nil {
			return "", fmt.Errorf("%s: %w", c.Series[i].Name, err)
		}
	}
	// What was added may have widened the axes.
	p.X.Min, p.X.Max = c.X.place(c.X.Min), c.X.place(c.X.Max)
	p.Y.Min, p.Y.Max = c.Y.place(c.Y.Min), c.Y.place(c.Y.Max)

	canvas := vgsvg.New(vg.Length(c.Width), vg.Length(c.Height))
	// The last label of the X axis is wider than its tick, and half of it lies outside.
	p.Draw(draw.Crop(draw.New(canvas), 3, -14, 2, -6))
	return written(canvas)
}

// written returns what a canvas has inside its element.
func written(canvas *vgsvg.Canvas) (string, error) {
	var b strings.Builder
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return adapt(b.String()), nil
}

// adapt takes the element away that surrounds a picture, and puts variables for its colours.
func adapt(svg string) string {
	from, to := strings.Index(svg, "<g "), strings.LastIndex(svg, "</svg>")
	svg = drawnFont.ReplaceAllString(svg[from:to], "")
	return drawnColour.ReplaceAllStringFunc(svg, func(s string) string {
		m := drawnColour.FindStringSubmatch(s)
		switch m[1] {
		case "01":
			return "var(--ink)"
		case "02":
			return "var(--grid)"
		}
		var i int
		_, _ = fmt.Sscanf(m[2], "%X", &i) // the expression has matched two digits
		return fmt.Sprintf("var(--line%d)", i)
	})
}

// apply gives a's looks and values to an axis of a plot, whose labels end with behind.
func (a Axis) apply(to *plot.Axis, behind string) {
	to.Label.Text = a.Label
	to.Label.Padding = 4
	to.Padding = 0
	to.Min, to.Max = a.place(a.Min), a.place(a.Max)
	to.LineStyle = draw.LineStyle{Color: inkColour, Width: 1}
	to.Tick.LineStyle = to.LineStyle
	to.Tick.Length = 4
	for _, s := range []*draw.TextStyle{&to.Label.TextStyle, &to.Tick.Label} {
		s.Font, s.Color = textStyle().Font, inkColour
	}
	var ticks plot.ConstantTicks
	for _, t := range a.Ticks {
		// Ends of axes are rounded; a tick there must not be lost.
		if t.At >= a.Min*(1-1e-9) && t.At <= a.Max*(1+1e-9) {
			if t.Label != "" {
				t.Label += behind
			}
			ticks = append(ticks, plot.Tick{Value: a.place(t.At), Label: t.Label})
		}
	}
	to.Tick.Marker = ticks
}

// line adds series i to a plot.
func (c Chart) line(p *plot.Plot, i int) error {
	points := c.Series[i].Points
	if len(points) == 0 {
		return nil
	}
	xys := make(plotter.XYs, len(points))
	whiskers := struct {
		plotter.XYs
		plotter.YErrors
	}{YErrors: make(plotter.YErrors, len(points))}
	whiskered := false
	for n, q := range points {
		xys[n] = plotter.XY{X: c.X.place(q.X), Y: c.Y.place(q.Y)}
		if q.High > 0 {
			whiskered = true
			whiskers.YErrors[n].Low = xys[n].Y - c.Y.place(q.Low)
			whiskers.YErrors[n].High = c.Y.place(q.High) - xys[n].Y
		}
	}
	whiskers.XYs = xys
	if whiskered {
		bars, err := plotter.NewYErrorBars(whiskers)
		if err != nil {
			return err
		}
		bars.LineStyle = draw.LineStyle{Color: lineColour(i), Width: 1}
		bars.CapWidth = 7
		p.Add(bars)
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	l.LineStyle = draw.LineStyle{Color: lineColour(i), Width: 2, Dashes: dashes[i%len(dashes)]}
	p.Add(l)
	if c.Marks {
		marks, err := plotter.NewScatter(xys)
		if err != nil {
			return err
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: lineColour(i), Radius: 4, Shape: shapes[i%len(shapes)]}
		p.Add(marks)
	}
	return nil
}

// place returns where v is on the axis, which for gonum is always linear: its logarithmic scale leaves
// room for labels in the wrong place. What is beyond an end is put there.
func (a Axis) place(v float64) float64 {
	v = math.Min(math.Max(v, a.Min), a.Max)
	if a.Log {
		return math.Log10(v)
	}
	return v
}
