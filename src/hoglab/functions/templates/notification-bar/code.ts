const DISMISSED = 'hoglab-notification-bar'

export function onLoad({ inputs, posthog }: any) {
  if (!inputs.message || localStorage.getItem(DISMISSED) === inputs.message) {
    return
  }
  const bar = document.createElement('div')
  bar.setAttribute('role', 'status')
  bar.style.cssText = 'position:fixed;top:0;left:0;right:0;z-index:2147483000;padding:8px 40px;text-align:center'
  bar.style.color = inputs.textColor
  bar.style.background = inputs.backgroundColor

  const message = document.createElement(inputs.url ? 'a' : 'span')
  message.textContent = inputs.message
  if (inputs.url) {
    message.setAttribute('href', inputs.url)
    message.style.color = inputs.textColor
    message.addEventListener('click', () => posthog.capture('notification bar clicked', { message: inputs.message }))
  }

  const close = document.createElement('button')
  close.textContent = '×'
  close.setAttribute('aria-label', 'Close')
  close.style.cssText = 'position:absolute;right:8px;border:0;background:none;font-size:20px;cursor:pointer'
  close.style.color = inputs.textColor
  close.addEventListener('click', () => {
    localStorage.setItem(DISMISSED, inputs.message)
    bar.remove()
  })

  bar.append(message, close)
  document.body.appendChild(bar)
}
