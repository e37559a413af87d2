export function onLoad({ inputs }: any) {
  const page = window as any
  page.dataLayer = page.dataLayer || []
  if (inputs.containerId) {
    page.dataLayer.push({ 'gtm.start': Date.now(), event: 'gtm.js' })
    const script = document.createElement('script')
    script.async = true
    script.src = 'https://www.googletagmanager.com/gtm.js?id=' + encodeURIComponent(inputs.containerId)
    document.head.appendChild(script)
  }
}

export function onEvent({ inputs }: any) {
  const page = window as any
  page.dataLayer.push({ ...(inputs.properties || {}), event: inputs.eventName })
}
